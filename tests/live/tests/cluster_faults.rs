//! A bank with an exact ledger on three nodes, with faults.
//!
//! Faults during the load: the node with the primary is killed, nodes are paused and restarted, and
//! writes are blocked.

use std::sync::Arc;
use std::time::Duration;

use txn_core::Config;
use txn_core::store::Store;
use txn_es::{EsConfig, EsStore};
use txn_fixtures::bank;
use txn_fixtures::faults::{Cluster, ClusterFault};
use txn_fixtures::ledger::{Counts, Ledger, Plan};

/// The number of transfers before each fault, and after it.
const TRANSFERS: u64 = 20;

/// The maximum duration of each step.
const BOUND: Duration = Duration::from_secs(240);

/// The shortest and the longest duration of a fault.
const BRIEF: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(15);

async fn store(cluster: &Cluster) -> Arc<dyn Store> {
    let config = EsConfig::new(cluster.urls()).expect("addresses");
    // Shorter than the time until the cluster notices a paused node.
    let config = config.with_request_timeout(Duration::from_secs(4));
    Arc::new(EsStore::connect(config).await.expect("answers"))
}

async fn ledger(cluster: &Cluster) -> Ledger {
    let config = Config::default()
        .with_lease(Duration::from_secs(2))
        .with_janitor_interval(Some(Duration::from_secs(5)))
        .with_timeout(Duration::from_secs(10));
    let plan = Plan::new(&txn_fixtures::unique("bank")).with_accounts(30).with_config(config);
    let mappings = serde_json::from_str(bank::MAPPINGS).expect("JSON");
    cluster.make(&plan.collection(), mappings).await;
    let coordinators = vec![store(cluster).await, store(cluster).await];
    Ledger::open(plan, coordinators, store(cluster).await).await
}

/// Returns the number of failures that the load has seen.
fn trouble(counts: Counts) -> u64 {
    counts.aborted + counts.unknown + counts.failed + counts.ticks_unknown
}

async fn bounded(what: &str, step: impl Future<Output = ()>) {
    tokio::time::timeout(BOUND, step).await.unwrap_or_else(|_| panic!("it takes too long: {what}"));
}

/// Runs a load before, during and after a fault.
///
/// Then checks the ledger.
async fn through(cluster: &Cluster, ledger: &Ledger, fault: ClusterFault) {
    let index = ledger.collection().to_owned();
    let began = std::time::Instant::now();
    let at = |what: &str| println!("{fault:?}, {:.1} s: {what}", began.elapsed().as_secs_f64());
    let course = async {
        bounded("before", ledger.acknowledges(TRANSFERS)).await;
        let before = trouble(ledger.counts());
        at("the load runs");
        let applied = fault.apply(cluster, &index).await;
        at("applied");
        let began = std::time::Instant::now();
        let noticed = || trouble(ledger.counts()) > before;
        while began.elapsed() < BRIEF || (!noticed() && began.elapsed() < LONG) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        if let (ClusterFault::KillPrimary, Some(node)) = (fault, applied.node()) {
            assert_ne!(cluster.holder_of_primary(&index).await, node, "no node took over");
        } else if fault != ClusterFault::RollingRestart {
            assert!(noticed(), "the load did not notice {fault:?}");
        }
        at("to be healed");
        applied.heal(cluster).await;
        at("healed");
        bounded("after", ledger.acknowledges(TRANSFERS)).await;
    };
    ledger.run(2, course).await;
    at("the load is over");
    let wrong = ledger.verify().await;
    at(&format!("compared: {:?}", ledger.counts()));
    assert_eq!(wrong, Vec::<String>::new(), "{fault:?}: {:?}", ledger.counts());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bank_survives_cluster_faults() {
    let cluster = Cluster::start().await;
    let ledger = ledger(&cluster).await;
    for fault in
        [ClusterFault::KillPrimary, ClusterFault::StopAndContinue, ClusterFault::WriteBlock]
    {
        Box::pin(through(&cluster, &ledger, fault)).await;
    }
    ledger.close().await;
    cluster.end().await;
}

/// All faults, for `TXN_CLUSTER_ROUNDS` rounds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; cargo test -p txn-live --features live,cluster --test cluster_faults -- --ignored"]
async fn bank_survives_every_cluster_fault() {
    let rounds = std::env::var("TXN_CLUSTER_ROUNDS").ok().and_then(|text| text.parse().ok());
    let cluster = Cluster::start().await;
    let ledger = ledger(&cluster).await;
    for _ in 0..rounds.unwrap_or(1) {
        for fault in ClusterFault::ALL {
            Box::pin(through(&cluster, &ledger, fault)).await;
        }
    }
    ledger.close().await;
    cluster.end().await;
}
