//! Faults of a cluster of three nodes, each applied to the index that a load writes, and healed again.
//!
//! ```no_run
//! # async fn demo() {
//! use txn_tests::faults::{Cluster, ClusterFault};
//!
//! let cluster = Cluster::start().await;
//! // ... a load writes the index `accounts` meanwhile ...
//! for fault in ClusterFault::ALL {
//!     let applied = fault.apply(&cluster, "accounts").await;
//!     // ... the load meets it ...
//!     applied.heal(&cluster).await;
//! }
//! cluster.end().await;
//! # }
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use txn_testkit::servers::{Running, ServerKind, up_private};

/// How long a cluster may take to be whole again, or to answer at all.
const PATIENCE: Duration = Duration::from_secs(240);

/// How long one node may take to answer.
const ANSWER: Duration = Duration::from_secs(10);

/// What can happen to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClusterFault {
    /// The node that holds the primary of the index is killed (SIGKILL). Healed, it is started again with its data.
    KillPrimary,
    /// One node after the other is shut down in order and started again. Nothing is left to be healed.
    RollingRestart,
    /// The node that holds the primary of the index is paused (SIGSTOP): its connections stay open, and nothing answers.
    /// Healed, it goes on.
    StopAndContinue,
    /// Writes to the index are blocked, as for a snapshot or by hand. Healed, the block is gone.
    WriteBlock,
    /// Writes to the index are blocked as on a full disk. Healed, the block is gone.
    FloodStage,
}

impl ClusterFault {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::KillPrimary,
        Self::RollingRestart,
        Self::StopAndContinue,
        Self::WriteBlock,
        Self::FloodStage,
    ];

    /// Waits until every copy is in place, and brings the fault about. A cluster that lacks copies would lose what was
    /// acknowledged, by nobody's fault.
    ///
    /// # Panics
    /// If the cluster does not do it.
    pub async fn apply(self, cluster: &Cluster, index: &str) -> Applied {
        cluster.is_green().await;
        let mut node = None;
        match self {
            Self::KillPrimary => {
                let holder = cluster.holder_of_primary(index).await;
                node = Some(holder);
                cluster.with(move |servers| servers.nodes()[holder].kill().expect("dies")).await;
            }
            Self::StopAndContinue => {
                let holder = cluster.holder_of_primary(index).await;
                node = Some(holder);
                cluster.with(move |servers| servers.nodes()[holder].stop().expect("pauses")).await;
            }
            Self::RollingRestart => {
                for node in 0..cluster.urls.len() {
                    cluster.is_green().await;
                    cluster
                        .with(move |servers| servers.restart_node(node).expect("comes back"))
                        .await;
                }
            }
            Self::WriteBlock | Self::FloodStage => {
                cluster.set(index, self.block(), json!(true)).await;
            }
        }
        Applied { fault: self, index: index.to_owned(), node }
    }

    fn block(self) -> &'static str {
        match self {
            Self::FloodStage => "index.blocks.read_only_allow_delete",
            _ => "index.blocks.write",
        }
    }
}

/// A fault that was brought about.
#[derive(Clone, Debug)]
#[must_use = "a fault stays until it is healed"]
pub struct Applied {
    fault: ClusterFault,
    index: String,
    node: Option<usize>,
}

impl Applied {
    /// Which fault.
    #[must_use]
    pub fn fault(&self) -> ClusterFault {
        self.fault
    }

    /// The node that was hit, if it was one.
    #[must_use]
    pub fn node(&self) -> Option<usize> {
        self.node
    }

    /// Takes it back, and waits until every copy is in place again.
    ///
    /// # Panics
    /// If the cluster does not recover.
    pub async fn heal(self, cluster: &Cluster) {
        match (self.fault, self.node) {
            (ClusterFault::KillPrimary, Some(node)) => {
                cluster.with(move |servers| servers.restart_node(node).expect("comes back")).await;
            }
            (ClusterFault::StopAndContinue, Some(node)) => {
                cluster.with(move |servers| servers.nodes()[node].cont().expect("goes on")).await;
            }
            (ClusterFault::WriteBlock | ClusterFault::FloodStage, _) => {
                cluster.set(&self.index, self.fault.block(), Value::Null).await;
            }
            _ => {}
        }
        cluster.is_green().await;
    }
}

/// Three nodes for one test alone. They end when this is dropped.
#[derive(Clone, Debug)]
pub struct Cluster {
    servers: Arc<Mutex<Running>>,
    urls: Vec<String>,
    http: reqwest::Client,
}

impl Cluster {
    /// Starts them.
    ///
    /// # Panics
    /// If that fails.
    pub async fn start() -> Self {
        let starting = tokio::task::spawn_blocking(|| up_private(ServerKind::Cluster));
        Self::of(starting.await.expect("no panic").expect("starts"))
    }

    /// Nodes that were started already.
    ///
    /// # Panics
    /// If there can be no HTTP client.
    #[must_use]
    pub fn of(servers: Running) -> Self {
        let http = reqwest::Client::builder().no_proxy().timeout(ANSWER).build();
        let urls = servers.urls();
        Self { servers: Arc::new(Mutex::new(servers)), urls, http: http.expect("a client") }
    }

    /// The addresses of all nodes.
    #[must_use]
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Makes an index whose copies are on two nodes.
    ///
    /// # Panics
    /// If that fails.
    pub async fn make(&self, index: &str, mappings: Value) {
        let settings = json!({"number_of_shards": 1, "number_of_replicas": 1});
        let body = json!({"settings": settings, "mappings": mappings});
        self.ask("PUT", &format!("/{index}"), Some(body)).await;
        self.is_green().await;
    }

    /// The number of the node that holds the primary of an index.
    ///
    /// # Panics
    /// If there is none for long.
    pub async fn holder_of_primary(&self, index: &str) -> usize {
        let began = Instant::now();
        let path = format!("/_cat/shards/{index}?format=json&h=prirep,state,node");
        loop {
            let shards = self.ask("GET", &path, None).await;
            let name = shards.as_array().into_iter().flatten().find_map(|shard| {
                let started = shard["prirep"] == "p" && shard["state"] == "STARTED";
                started.then(|| shard["node"].as_str().map(str::to_owned)).flatten()
            });
            if let Some(name) = name {
                let holder = move |servers: &mut Running| {
                    servers.nodes().iter().position(|node| node.name() == name)
                };
                return self.with(holder).await.expect("one of ours");
            }
            assert!(began.elapsed() < PATIENCE, "no primary of {index}: {shards}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Waits until three nodes have every copy of everything.
    ///
    /// # Panics
    /// If that takes too long.
    pub async fn is_green(&self) {
        let began = Instant::now();
        let path = "/_cluster/health?wait_for_status=green&wait_for_nodes=3\
                    &wait_for_no_relocating_shards=true&timeout=5s";
        loop {
            let health = self.ask("GET", path, None).await;
            if health["status"] == "green" && health["timed_out"] == false {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "not whole: {health}");
        }
    }

    /// Ends all nodes.
    ///
    /// # Panics
    /// If that panics.
    pub async fn end(self) {
        tokio::task::spawn_blocking(move || drop(self)).await.expect("no panic");
    }

    async fn set(&self, index: &str, setting: &str, value: Value) {
        self.ask("PUT", &format!("/{index}/_settings"), Some(json!({setting: value}))).await;
    }

    /// Blocks, outside of the tasks of the load.
    async fn with<T: Send + 'static>(
        &self,
        what: impl FnOnce(&mut Running) -> T + Send + 'static,
    ) -> T {
        let servers = self.servers.clone();
        let done = tokio::task::spawn_blocking(move || what(&mut servers.lock()));
        done.await.expect("no panic")
    }

    /// The answer of the first node that has one. Some are away, and some say that they have no master.
    async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let began = Instant::now();
        let method: reqwest::Method = method.parse().expect("a method");
        for url in self.urls.iter().cycle() {
            let mut request = self.http.request(method.clone(), format!("{url}{path}"));
            if let Some(body) = &body {
                request = request.json(body);
            }
            let problem = match request.send().await {
                Ok(answer) => {
                    let status = answer.status();
                    let text = answer.text().await.unwrap_or_default();
                    // A health that was waited for in vain is 408.
                    if status.is_success() || status.as_u16() == 408 {
                        return serde_json::from_str(&text).unwrap_or_default();
                    }
                    assert!(!status.is_client_error(), "{method} {path}: {status} {text}");
                    text
                }
                Err(error) => error.to_string(),
            };
            assert!(began.elapsed() < PATIENCE, "{method} {path}: {problem}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Value::Null
    }
}
