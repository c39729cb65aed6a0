//! The jobs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fastrand::Rng;
use parking_lot::Mutex;
use serde_json::{Value, json};
use txn_fixtures::administrator::{
    Snapshot, close, open, put_settings, put_template, remove_template, send,
};
use txn_fixtures::faults::Cluster;
use txn_fixtures::ledger::Ledger;
use txn_fixtures::plain_client::PlainClient;

use super::schedule::Job;
use crate::fault::Fault;
use crate::load::goes_on;

/// The maximum time until shards are in place. Another job of the round may prevent it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time between two readings of the shards.
const INTERVAL: Duration = Duration::from_millis(200);

/// The number of transfers during a state of a job.
const TRANSFERS: u64 = 10;

/// The fields that one job adds to a mapping.
const FIELDS: std::ops::RangeInclusive<u64> = 5..=40;

/// The largest number of added fields. An index may have 1,000 fields.
const MOST_FIELDS: u64 = 600;

/// The counts of all jobs.
#[derive(Debug, Default)]
struct Figures {
    jobs: BTreeMap<String, u64>,
    moved: u64,
    moves_refused: u64,
    drained: u64,
    copied: u64,
    locks_copied: u64,
    fields: u64,
    longest: Duration,
    longest_name: String,
    transfers: u64,
    notes: Vec<String>,
}

/// An administrator of the indices of a load.
#[derive(Debug)]
pub(super) struct Administrator {
    plain: PlainClient,
    ledger: Ledger,
    /// The indices of the application.
    indices: [String; 2],
    figures: Mutex<Figures>,
}

/// A copy of a shard that runs on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shard {
    index: String,
    number: u64,
    node: String,
    is_started: bool,
}

impl Administrator {
    pub(super) fn new(cluster: &Cluster, ledger: Ledger, lists: &str) -> Self {
        let indices = [ledger.collection().to_owned(), lists.to_owned()];
        let plain = PlainClient::new(&cluster.urls()[0]);
        Self { plain, ledger, indices, figures: Mutex::default() }
    }

    /// Does a job, and waits for its end.
    pub(super) async fn run(&self, job: &Job) -> Result<(), String> {
        tokio::time::sleep(job.delay).await;
        let (began, before) = (Instant::now(), self.ledger.counts().acknowledged);
        let mut random = Rng::with_seed(job.seed);
        let index = &self.indices[random.usize(..self.indices.len())];
        match job.fault {
            Fault::MoveShard => self.move_shard(&mut random).await?,
            Fault::DrainNode => self.drain_node(&mut random).await?,
            Fault::ChangeReplicas => self.change_replicas(index).await?,
            Fault::SnapshotAndRestore => self.snapshot_and_restore(&mut random).await?,
            Fault::ForceMerge => self.ask("POST", "/_forcemerge?max_num_segments=1").await?,
            Fault::CloseAndOpen => self.close_and_open(index, &mut random).await?,
            Fault::GrowMapping => self.grow_mapping(index, &mut random).await?,
            Fault::ChangeTemplates => self.change_templates().await?,
            Fault::ChangeRefresh => self.change_refresh(index).await?,
            Fault::ClearCaches => self.ask("POST", "/_cache/clear").await?,
            Fault::Flush => self.ask("POST", "/_flush?force=true").await?,
            other => return Err(format!("{other} is no job of a server's life")),
        }
        let (took, name) = (began.elapsed(), job.fault.to_string());
        let transfers = self.ledger.counts().acknowledged - before;
        let mut figures = self.figures.lock();
        figures.notes.push(format!("{name}: {:.1} s, {transfers} transfers", took.as_secs_f64()));
        if took > figures.longest {
            (figures.longest, figures.longest_name) = (took, name.clone());
        }
        figures.transfers += transfers;
        *figures.jobs.entry(name).or_default() += 1;
        Ok(())
    }

    /// Returns how often each job was done.
    pub(super) fn counts(&self) -> BTreeMap<String, u64> {
        self.figures.lock().jobs.clone()
    }

    /// Returns a line about each job since the last call.
    pub(super) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.figures.lock().notes)
    }

    pub(super) fn lines(&self) -> Vec<(String, u64)> {
        let figures = self.figures.lock();
        let longest = u64::try_from(figures.longest.as_millis()).unwrap_or(u64::MAX);
        vec![
            ("shards moved by a command".to_owned(), figures.moved),
            ("moves refused by the cluster".to_owned(), figures.moves_refused),
            ("nodes without shards after a drain".to_owned(), figures.drained),
            ("documents in restored copies".to_owned(), figures.copied),
            ("  of these locked".to_owned(), figures.locks_copied),
            ("fields added to mappings".to_owned(), figures.fields),
            ("transfers during jobs".to_owned(), figures.transfers),
            (format!("longest job, ms: {}", figures.longest_name), longest),
        ]
    }

    async fn ask(&self, method: &str, path: &str) -> Result<(), String> {
        send(&self.plain, method, path, None).await.map(drop)
    }

    /// Returns the assigned copies of all shards.
    async fn shards(&self) -> Result<Vec<Shard>, String> {
        let path = "/_cat/shards?format=json&h=index,shard,state,node";
        let found = send(&self.plain, "GET", path, None).await?;
        let shard = |shard: &Value| {
            Some(Shard {
                index: shard["index"].as_str()?.to_owned(),
                number: shard["shard"].as_str()?.parse().ok()?,
                // A moving shard names both nodes.
                node: shard["node"].as_str()?.split(' ').next()?.to_owned(),
                is_started: shard["state"] == "STARTED",
            })
        };
        Ok(found.as_array().into_iter().flatten().filter_map(shard).collect())
    }

    async fn nodes(&self) -> Result<Vec<String>, String> {
        let found = send(&self.plain, "GET", "/_cat/nodes?format=json&h=name", None).await?;
        let nodes = found.as_array().into_iter().flatten();
        let mut names: Vec<String> =
            nodes.filter_map(|node| node["name"].as_str().map(str::to_owned)).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Waits until no shard moves.
    ///
    /// Returns whether each copy is in place.
    async fn is_in_place(&self) -> Result<bool, String> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let health = send(&self.plain, "GET", "/_cluster/health", None).await?;
            let is_calm = health["relocating_shards"] == 0 && health["initializing_shards"] == 0;
            if is_calm && health["status"] == "green" {
                return Ok(true);
            }
            tokio::time::sleep(INTERVAL).await;
        }
        Ok(false)
    }

    /// Moves a copy of a shard to a node that has none.
    async fn move_shard(&self, random: &mut Rng) -> Result<(), String> {
        let (nodes, began) = (self.nodes().await?, Instant::now());
        while began.elapsed() < PATIENCE {
            let shards = self.shards().await?;
            if let Some((shard, to)) = choose_move(&shards, &nodes, random) {
                let command = json!({"move": {
                    "index": shard.index, "shard": shard.number, "from_node": shard.node, "to_node": to,
                }});
                let body = json!({"commands": [command]});
                if send(&self.plain, "POST", "/_cluster/reroute", Some(body)).await.is_ok() {
                    self.is_in_place().await?;
                    self.figures.lock().moved += 1;
                    return Ok(());
                }
                // Another job of the round may forbid it.
                self.figures.lock().moves_refused += 1;
            }
            tokio::time::sleep(INTERVAL).await;
        }
        Ok(())
    }

    /// Excludes a node from the allocation until it has no shards.
    async fn drain_node(&self, random: &mut Rng) -> Result<(), String> {
        let node = random.choice(self.nodes().await?).ok_or("the cluster has no nodes")?;
        self.exclude(json!(node)).await?;
        let began = Instant::now();
        loop {
            let mut shards = self.shards().await?;
            shards.retain(|shard| shard.node == node);
            if shards.is_empty() {
                self.figures.lock().drained += 1;
                break;
            }
            if began.elapsed() >= PATIENCE {
                self.figures.lock().notes.push(format!("{node} still has {shards:?}"));
                break;
            }
            tokio::time::sleep(INTERVAL).await;
        }
        let went_on = goes_on(&self.ledger, TRANSFERS).await;
        self.exclude(Value::Null).await?;
        went_on
    }

    async fn exclude(&self, node: Value) -> Result<(), String> {
        let body = json!({"persistent": {"cluster.routing.allocation.exclude._name": node}});
        send(&self.plain, "PUT", "/_cluster/settings", Some(body)).await.map(drop)
    }

    async fn change_replicas(&self, index: &str) -> Result<(), String> {
        for replicas in [0, 1, 2, 1] {
            let body = json!({"index.number_of_replicas": replicas});
            put_settings(&self.plain, index, body).await?;
            self.is_in_place().await?;
            goes_on(&self.ledger, TRANSFERS).await?;
        }
        Ok(())
    }

    /// Restores a snapshot beside the original, and drops the copies.
    ///
    /// The original goes on.
    async fn snapshot_and_restore(&self, random: &mut Rng) -> Result<(), String> {
        let plain = &self.plain;
        let repository = txn_fixtures::unique("snapshots");
        let indices = self.indices.each_ref().map(String::as_str);
        let snapshot = Snapshot::take(plain, &repository, &indices).await?;
        let copies = snapshot.restore(plain, "-restored", random.bool()).await?;
        let went_on = goes_on(&self.ledger, 2 * TRANSFERS).await;
        for copy in &copies {
            let all = plain.count(copy, &json!({"match_all": {}})).await;
            let locked = json!({"exists": {"field": "transaction_tid"}});
            let locked = plain.count(copy, &locked).await;
            let mut figures = self.figures.lock();
            figures.copied += all;
            figures.locks_copied += locked;
        }
        for copy in &copies {
            self.ask("DELETE", &format!("/{copy}")).await?;
        }
        snapshot.remove(plain).await?;
        went_on
    }

    async fn close_and_open(&self, index: &str, random: &mut Rng) -> Result<(), String> {
        close(&self.plain, index).await?;
        tokio::time::sleep(Duration::from_millis(random.u64(500..4_000))).await;
        open(&self.plain, index).await?;
        goes_on(&self.ledger, TRANSFERS).await
    }

    async fn grow_mapping(&self, index: &str, random: &mut Rng) -> Result<(), String> {
        let (first, more) = {
            let mut figures = self.figures.lock();
            let more = random.u64(FIELDS).min(MOST_FIELDS.saturating_sub(figures.fields));
            figures.fields += more;
            (figures.fields - more, more)
        };
        for number in first..first + more {
            let kind = random.choice(["keyword", "long", "text", "date"]).unwrap_or("keyword");
            let body = json!({"properties": {format!("added_{number}"): {"type": kind}}});
            send(&self.plain, "PUT", &format!("/{index}/_mapping"), Some(body)).await?;
        }
        Ok(())
    }

    /// Changes a template of the load, and removes a foreign one.
    ///
    /// The foreign template is one of other indices.
    async fn change_templates(&self) -> Result<(), String> {
        let plain = &self.plain;
        let patterns = self.indices.each_ref().map(|index| format!("{index}*"));
        let names = ["own", "other"].map(txn_fixtures::unique);
        let other = [format!("{}-*", names[1])];
        for interval in ["2s", "5s"] {
            let own = json!({"settings": {"index.refresh_interval": interval}});
            put_template(plain, &names[0], &patterns, &own).await?;
            let shards = json!({"settings": {"index.number_of_shards": 3}});
            put_template(plain, &names[1], &other, &shards).await?;
            goes_on(&self.ledger, TRANSFERS).await?;
        }
        for name in &names {
            remove_template(plain, name).await?;
        }
        Ok(())
    }

    async fn change_refresh(&self, index: &str) -> Result<(), String> {
        for interval in [json!("-1"), json!("100ms"), json!("10s"), Value::Null] {
            put_settings(&self.plain, index, json!({"index.refresh_interval": interval})).await?;
            goes_on(&self.ledger, TRANSFERS).await?;
        }
        Ok(())
    }
}

/// Chooses a copy of a shard, and a node for it.
///
/// The copy is started, and the node has no copy of that shard.
fn choose_move<'a>(
    shards: &'a [Shard],
    nodes: &'a [String],
    random: &mut Rng,
) -> Option<(&'a Shard, &'a str)> {
    let started: Vec<&Shard> = shards.iter().filter(|shard| shard.is_started).collect();
    let shard = random.choice(started)?;
    let is_copy = |other: &&Shard| (&other.index, other.number) == (&shard.index, shard.number);
    let taken: Vec<&str> = shards.iter().filter(is_copy).map(|copy| &*copy.node).collect();
    let free: Vec<&str> =
        nodes.iter().map(String::as_str).filter(|node| !taken.contains(node)).collect();
    Some((shard, random.choice(free)?))
}
