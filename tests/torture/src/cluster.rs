//! Three nodes that are killed, paused, restarted and blocked.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use txn_fixtures::bank;
use txn_fixtures::faults::{Cluster, ClusterFault};

use crate::fault::Fault;
use crate::load::{Load, Shape, Timing};
use crate::report::{Report, missed, progress};

/// The duration of the load before, during and after a fault.
const CALM: Duration = Duration::from_secs(3);
const FAULT: Duration = Duration::from_secs(8);

const TIMING: Timing = Timing {
    lease: Duration::from_secs(2),
    janitor_interval: Duration::from_secs(5),
    timeout: Duration::from_secs(10),
    // Shorter than a cut, and than the time until the cluster notices a paused node.
    request_timeout: Duration::from_secs(4),
};

/// Runs the load for `span`, and reports.
///
/// # Errors
/// If the load cannot run.
pub async fn run(faults: &[Fault], span: Duration, shape: Shape) -> Result<Report, String> {
    let faults = wanted(faults)?;
    let planned: Vec<String> = faults.iter().map(|fault| format!("{fault:?}")).collect();
    let cluster = Cluster::start().await;
    let mut load = open(&cluster, shape, |_| cluster.urls().to_vec()).await?;
    let (began, bar) = (Instant::now(), progress(span));
    let mut counts = BTreeMap::new();
    let mut rounds = 0;
    for fault in faults.into_iter().cycle() {
        if began.elapsed() >= span {
            break;
        }
        let index = load.ledger().collection().to_owned();
        let course = async {
            tokio::time::sleep(CALM).await;
            let applied = fault.apply(&cluster, &index).await;
            tokio::time::sleep(FAULT).await;
            applied.heal(&cluster).await;
            tokio::time::sleep(CALM).await;
        };
        load.round(shape.workers, course).await;
        rounds += 1;
        *counts.entry(format!("{fault:?}")).or_default() += 1;
        bar.set_position(began.elapsed().as_secs());
        bar.set_message(load.line());
    }
    bar.finish_and_clear();
    let mut violations = load.violations.clone();
    violations.extend(missed(span, planned, &counts));
    let report = Report::new(began, rounds, load.counted(), &counts, violations);
    load.close().await;
    cluster.end().await;
    Ok(report)
}

/// Opens the load on a cluster; each coordinator has its addresses.
pub(crate) async fn open(
    cluster: &Cluster,
    shape: Shape,
    urls_of: impl Fn(usize) -> Vec<String>,
) -> Result<Load, String> {
    let name = txn_fixtures::unique("torture");
    let mappings = serde_json::from_str(bank::MAPPINGS).map_err(|error| error.to_string())?;
    cluster.make(&format!("{name}-ledger"), mappings).await;
    Load::open(&name, shape, TIMING, urls_of, cluster.urls().to_vec()).await
}

fn wanted(faults: &[Fault]) -> Result<Vec<ClusterFault>, String> {
    if faults.is_empty() {
        return Ok(ClusterFault::ALL.to_vec());
    }
    let of = |fault: &Fault| match fault {
        Fault::Network => Err("the network fails in front of one server only".to_owned()),
        Fault::KillPrimary => Ok(ClusterFault::KillPrimary),
        Fault::RollingRestart => Ok(ClusterFault::RollingRestart),
        Fault::StopAndContinue => Ok(ClusterFault::StopAndContinue),
        Fault::WriteBlock => Ok(ClusterFault::WriteBlock),
        Fault::FloodStage => Ok(ClusterFault::FloodStage),
        power if Fault::OF_POWER.contains(power) => {
            Err(format!("{power} needs the target `power-loss`"))
        }
        upgrade if Fault::OF_UPGRADES.contains(upgrade) => {
            Err(format!("{upgrade} needs the target `upgrade`"))
        }
        job if Fault::OF_LIFE.contains(job) => Err(format!("{job} needs the target `life`")),
        between => Err(format!("{between} needs the target `partitions`")),
    };
    faults.iter().map(of).collect()
}
