//! An index that is deleted and recreated during a transaction.
//!
//! The transaction is at a known step. The new documents get the sequence numbers of the old ones.

use serde_json::{Value, json};
use txn_core::ErrorKind;
use txn_fixtures::bank;
use txn_fixtures::fixture::Fixture;
use txn_fixtures::wire;
use txn_testkit::proxy::Point;

use super::{Stage, soon, until};

/// Deletes the index, and creates it again with as many writes.
async fn make_again(fixture: &Fixture, stage: &Stage) {
    let name = stage.accounts.name();
    let about = fixture.plain.ok("GET", &format!("/{name}"), None).await;
    let settings = &about[name]["settings"]["index"];
    let shards = settings["number_of_shards"].clone();
    let before = version(fixture, name).await;
    fixture.plain.ok("DELETE", &format!("/{name}"), None).await;
    let mappings: Value = serde_json::from_str(bank::MAPPINGS).expect("JSON");
    let settings = json!({"number_of_shards": shards, "number_of_replicas": 0});
    fixture.plain.make(name, &json!({"settings": settings, "mappings": mappings})).await;
    for id in &stage.names {
        stage.replace(fixture, id, r#"{"balance":5}"#).await;
    }
    while version(fixture, name).await < before {
        stage.replace(fixture, "a1", r#"{"balance":5}"#).await;
    }
    assert_eq!(version(fixture, name).await, before, "the versions are the same");
}

/// Returns the sequence number of `a1`.
async fn version(fixture: &Fixture, name: &str) -> u64 {
    let document = fixture.plain.ok("GET", &format!("/{name}/_doc/a1"), None).await;
    document["_seq_no"].as_u64().expect("a number")
}

async fn untouched(fixture: &Fixture, stage: &Stage) {
    for id in &stage.names {
        let source = stage.source(fixture, id).await.expect("exists");
        assert_eq!(source, r#"{"balance":5}"#, "{id}");
    }
}

/// No write of the transaction reaches the new index.
///
/// The loss of the old index is reported.
pub(crate) async fn made_again_before_the_locks(fixture: &Fixture) {
    let stage = Stage::on(fixture).await;
    let (hold, transfer) = stage.held(wire::locks(), Point::Before).await;
    make_again(fixture, &stage).await;
    hold.release();
    let error = soon(transfer).await.expect("no panic").expect_err("the index is gone");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    is_told(fixture, &stage).await;
    stage.ends().await;
}

/// The locks are lost with the index. The transaction commits by its record, and can never be
/// applied.
pub(crate) async fn made_again_with_the_locks_taken(fixture: &Fixture) {
    let stage = Stage::on(fixture).await;
    let (hold, transfer) = stage.held(wire::commits(), Point::Before).await;
    make_again(fixture, &stage).await;
    hold.release();
    soon(transfer).await.expect("no panic").expect("it is committed");
    until("the damage", || stage.log.damaged() == ["a0", "a1", "a2"]).await;
    is_told(fixture, &stage).await;
    stage.ends().await;
}

async fn is_told(fixture: &Fixture, stage: &Stage) {
    untouched(fixture, stage).await;
    let report = stage.witness.admin().janitor_pass().await.expect("passes");
    let again = report.damaged.iter().any(|(_, what)| what.contains("made again"));
    assert!(again, "{report:?}");
    untouched(fixture, stage).await;
}

pub(crate) async fn made_again_after_the_commit(fixture: &Fixture) {
    let stage = Stage::on(fixture).await;
    let (hold, transfer) = stage.held(wire::applies(), Point::Before).await;
    soon(transfer).await.expect("no panic").expect("it is committed");
    make_again(fixture, &stage).await;
    hold.release();
    until("the damage", || !stage.log.damages().is_empty()).await;
    assert_eq!(stage.log.damaged(), ["a0", "a1", "a2"], "{:?}", stage.log);
    is_told(fixture, &stage).await;
    // After a new claim the index serves transactions.
    bank::open(&stage.witness, stage.accounts.name()).await;
    stage.spread().await.expect("goes on");
    let expected = [3, 6, 6].map(Some);
    assert_eq!(stage.balances().await, expected);
    stage.ends().await;
}

/// Another transaction writes the new documents before the first one is applied.
///
/// The apply reports its writes as lost, and leaves the new documents unchanged.
pub(crate) async fn made_again_and_written_since(fixture: &Fixture) {
    let stage = Stage::on(fixture).await;
    let (hold, transfer) = stage.held(wire::applies(), Point::Before).await;
    soon(transfer).await.expect("no panic").expect("it is committed");
    make_again(fixture, &stage).await;
    bank::open(&stage.witness, stage.accounts.name()).await;
    stage.spread().await.expect("goes on");
    hold.release();
    until("the damage", || stage.log.damaged() == ["a0", "a1", "a2"]).await;
    assert_eq!(stage.balances().await, [3, 6, 6].map(Some));
    stage.ends().await;
}
