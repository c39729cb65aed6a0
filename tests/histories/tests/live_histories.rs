//! Recorded histories on real servers.

use txn_fixtures::fixture::{Fixture, PATIENCE};
use txn_histories::history::{Kind, Model};
use txn_histories::{Fleet, Stop, Workload, WorkloadConfig, check};
use txn_testkit::env;

/// Three processes and some 250 transactions of one to six operations.
async fn holds(url: &str, model: Model) {
    let fixture = Fixture::at(url).await;
    let mut processes = Vec::new();
    for _ in 0..3 {
        processes.push(fixture.domain().await);
    }
    let seed = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| u64::from(since.subsec_nanos()));
    let config = WorkloadConfig::new(model)
        .with_collection(fixture.name("histories"))
        .with_seed(seed)
        .with_workers(5)
        .with_keys(30)
        .with_skew(0.6)
        .with_timeout(PATIENCE);
    let workload = Workload::new(config);
    let until = Stop::default().after_transactions(250);
    let fleet = Fleet::new(processes.clone());
    let mut history = workload.run(&fleet, &until).await.expect("runs");
    let witness = fixture.domain().await;
    workload.settle(&mut history, &witness).await.expect("settles");
    let verdict = check(&history);
    assert!(verdict.holds_with(200), "{verdict}\nseed {seed}");
    assert_eq!(history.count(Kind::Info), 0, "a sound server leaves nothing unknown: {verdict}");
    for process in &processes {
        assert!(process.shutdown(PATIENCE).await, "drained");
    }
    fixture.settle(&witness).await;
    fixture.clear().await;
}

macro_rules! on_servers {
    ($($server:ident, $url:ident;)*) => {$(
        mod $server {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn list_appends() {
                holds(&env::$url(), Model::ListAppend).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn registers() {
                holds(&env::$url(), Model::Register).await;
            }
        }
    )*};
}

on_servers! {
    elasticsearch8, elasticsearch_url;
    opensearch3, opensearch_url;
}

mod matrix {
    use super::*;

    on_servers! {
        elasticsearch7, elasticsearch7_url;
        elasticsearch9, elasticsearch9_url;
        opensearch2, opensearch2_url;
    }
}
