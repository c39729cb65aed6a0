//! A bank with exact books on three nodes: the node with the primary is killed, nodes are paused, restarted, and writes
//! are blocked, in the middle of a load.

use std::sync::Arc;
use std::time::Duration;

use txn_core::Config;
use txn_core::store::Store;
use txn_es::{EsConfig, EsStore};
use txn_fixtures::bank;
use txn_fixtures::faults::{Cluster, ClusterFault};
use txn_fixtures::ledger::{Counts, Ledger, Plan};

/// Transfers before each fault, and after it.
const TRANSFERS: u64 = 20;

/// How long each step may take.
const BOUND: Duration = Duration::from_secs(240);

/// How long a fault lasts at least, and at most.
const BRIEF: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(15);

async fn store(cluster: &Cluster) -> Arc<dyn Store> {
    let config = EsConfig::new(cluster.urls()).expect("addresses");
    // Less than a paused node takes to be noticed.
    let config = config.with_request_timeout(Duration::from_secs(4));
    Arc::new(EsStore::connect(config).await.expect("answers"))
}

async fn ledger(cluster: &Cluster) -> Ledger {
    let config = Config::default()
        .with_lease(Duration::from_secs(2))
        .with_janitor_interval(Some(Duration::from_secs(5)))
        .with_deadline(Duration::from_secs(10));
    let plan = Plan::new(&txn_fixtures::unique("bank")).with_accounts(30).with_config(config);
    let mappings = serde_json::from_str(bank::MAPPINGS).expect("JSON");
    cluster.make(&plan.collection(), mappings).await;
    let coordinators = vec![store(cluster).await, store(cluster).await];
    Ledger::open(plan, coordinators, store(cluster).await).await
}

/// What went wrong so far, from the point of view of the load.
fn trouble(counts: Counts) -> u64 {
    counts.aborted + counts.unknown + counts.failed + counts.ticks_unknown
}

async fn bounded(what: &str, step: impl Future<Output = ()>) {
    tokio::time::timeout(BOUND, step).await.unwrap_or_else(|_| panic!("it takes too long: {what}"));
}

/// A load goes into a fault, through it and out of it; then the books are compared.
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
            assert_ne!(cluster.holder_of_primary(&index).await, node, "nobody took over");
        } else if fault != ClusterFault::RollingRestart {
            assert!(noticed(), "nobody noticed {fault:?}");
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
async fn a_bank_on_a_cluster_that_fails() {
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

/// All faults, as many rounds as `TXN_CLUSTER_ROUNDS` says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; cargo test -p txn-live --features live,cluster --test cluster_faults -- --ignored"]
async fn a_bank_on_a_cluster_that_fails_in_every_way() {
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
