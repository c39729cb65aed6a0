//! A server is upgraded to the next versions under load.
//!
//! The data of the server stays.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;
use txn_fixtures::plain_client::PlainClient;
use txn_testkit::servers::{Running, ServerKind, up_private};

use crate::fault::Fault;
use crate::load::{Load, Shape, goes_on};
use crate::report::{Report, progress};
use crate::single::open;

/// The supported versions of Elasticsearch.
pub const ELASTICSEARCH: [ServerKind; 3] =
    [ServerKind::Elasticsearch7, ServerKind::Elasticsearch, ServerKind::Elasticsearch9];

/// The supported versions of OpenSearch.
pub const OPENSEARCH: [ServerKind; 2] = [ServerKind::OpenSearch2, ServerKind::OpenSearch];

/// The number of transfers before an upgrade, and after it.
const TRANSFERS: u64 = 30;

/// Upgrades servers through all `versions` for `span`, and reports.
///
/// The processes of the load stay the same during an upgrade. Each upgrade has a new load on new
/// indices, because Elasticsearch 9 refuses the indices of Elasticsearch 7.
///
/// # Errors
/// If the load cannot run, or a version does not start on the data of the version before.
pub async fn run(
    versions: &[ServerKind],
    faults: &[Fault],
    span: Duration,
    shape: Shape,
) -> Result<Report, String> {
    if let Some(fault) = faults.iter().find(|fault| !Fault::OF_UPGRADES.contains(fault)) {
        return Err(format!("{fault} is no fault of upgrades"));
    }
    let faults = if faults.is_empty() { &Fault::OF_UPGRADES } else { faults };
    let (began, bar) = (Instant::now(), progress(span));
    let mut total = Total::default();
    for (chains, fault) in faults.iter().cycle().enumerate() {
        if began.elapsed() >= span && chains >= faults.len() {
            break;
        }
        let mut server = Some(start(versions[0]).await?);
        for newer in &versions[1..] {
            let Some(running) = server.take() else { continue };
            let older = running.kind();
            bar.suspend(|| eprintln!("{fault} from {older} to {newer}"));
            let running = total.upgrade(running, *newer, *fault, shape).await?;
            bar.set_position(began.elapsed().as_secs());
            server = Some(running);
        }
        let _ = tokio::task::spawn_blocking(move || drop(server)).await;
    }
    bar.finish_and_clear();
    let Total { rounds, counted, faults, violations } = total;
    Ok(Report::new(began, rounds, counted, &faults, violations))
}

async fn start(kind: ServerKind) -> Result<Running, String> {
    let starting = tokio::task::spawn_blocking(move || up_private(kind)).await;
    starting.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}

/// The results of all loads.
#[derive(Debug, Default)]
struct Total {
    rounds: u64,
    counted: Vec<(String, u64)>,
    faults: BTreeMap<String, u64>,
    violations: Vec<String>,
}

impl Total {
    /// Upgrades the server under a new load.
    ///
    /// Then checks the load, and removes the indices of the load.
    async fn upgrade(
        &mut self,
        running: Running,
        newer: ServerKind,
        fault: Fault,
        shape: Shape,
    ) -> Result<Running, String> {
        let (older, url) = (running.kind(), running.url().to_owned());
        let mut load = open(&url, &url, shape).await?;
        let mut upgraded = None;
        let mut went_on = Ok(());
        let ledger = load.ledger();
        let course = async {
            went_on = goes_on(&ledger, TRANSFERS).await;
            let upgrading = tokio::task::spawn_blocking(move || upgrade(running, newer, fault));
            upgraded = upgrading.await.ok();
            went_on = went_on.clone().and(goes_on(&ledger, TRANSFERS).await);
        };
        load.round(shape.workers, course).await;
        let failed = |why| format!("{fault} from {older} to {newer}: {why}");
        let running = upgraded.ok_or_else(|| failed("the load did not begin".to_owned()))?;
        let running = running.map_err(failed)?;
        went_on.map_err(failed)?;
        self.rounds += 1;
        *self.faults.entry(format!("{fault} to {newer}")).or_default() += 1;
        self.add(&load);
        load.close().await;
        clear(&url).await?;
        Ok(running)
    }

    fn add(&mut self, load: &Load) {
        let counted = load.counted();
        if self.counted.is_empty() {
            self.counted = counted;
        } else {
            for ((_, sum), (_, count)) in self.counted.iter_mut().zip(counted) {
                *sum += count;
            }
        }
        self.violations.extend(load.violations.iter().cloned());
    }
}

fn upgrade(mut running: Running, newer: ServerKind, fault: Fault) -> Result<Running, String> {
    if fault == Fault::KillAndUpgrade {
        for node in running.nodes() {
            node.kill().map_err(|error| error.to_string())?;
        }
    }
    running.upgrade(newer).map_err(|error| error.to_string())?;
    Ok(running)
}

/// Removes all indices of the load.
async fn clear(url: &str) -> Result<(), String> {
    let plain = PlainClient::new(url);
    let indices = plain.ok("GET", "/_cat/indices?format=json&h=index", None).await;
    let names = indices.as_array().into_iter().flatten();
    for name in names.filter_map(|index| index.get("index").and_then(Value::as_str)) {
        if !name.starts_with('.') {
            plain.ok("DELETE", &format!("/{name}"), None).await;
        }
    }
    Ok(())
}
