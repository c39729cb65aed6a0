//! A server on a disk that loses its power.
//!
//! The acknowledged writes survive, or do not.

use fastrand::Rng;
use serde_json::json;
use txn_fixtures::plain_client::PlainClient;
use txn_lossy_disk::{Metadata, check};
use txn_testkit::servers::ServerKind;
use txn_torture::power_loss::Machine;

/// The number of documents in each index.
const DOCUMENTS: u64 = 50;

/// The power losses keep a synced translog only.
///
/// The power losses do lose the other translog.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_synced_translog_survives() {
    if let Err(reason) = check() {
        eprintln!("skipped: {reason}");
        return;
    }
    let start = || Machine::start(ServerKind::Elasticsearch, Metadata::Journaled);
    let starting = tokio::task::spawn_blocking(start).await;
    let mut machine = starting.expect("no panic").expect("starts");
    let plain = PlainClient::new(&machine.urls()[0]);
    for durability in ["request", "async"] {
        let settings = json!({
            "index.number_of_replicas": 0,
            "index.translog.durability": durability,
            "index.translog.sync_interval": "1h",
        });
        plain.make(durability, &json!({"settings": settings})).await;
        for number in 0..DOCUMENTS {
            // Answered with 201 in both indices.
            plain.put(durability, &number.to_string(), r#"{"size":1}"#).await;
        }
    }
    let losing = tokio::task::spawn_blocking(move || {
        let loss = machine.fail(&mut Rng::with_seed(1)).expect("loses its power");
        println!("{loss}");
        machine.restart().expect("starts again");
        machine
    });
    let machine = losing.await.expect("no panic");
    let all = json!({"match_all": {}});
    for index in ["request", "async"] {
        plain.ok("POST", &format!("/{index}/_refresh"), None).await;
    }
    let (synced, unsynced) = (plain.count("request", &all).await, plain.count("async", &all).await);
    println!("{synced} with `request`, {unsynced} with `async`");
    assert_eq!(synced, DOCUMENTS);
    assert!(unsynced < DOCUMENTS, "the disk kept everything");
    tokio::task::spawn_blocking(move || drop(machine)).await.expect("no panic");
}
