//! Plain clients that write locked documents.

use txn_core::Options;
use txn_fixtures::bank;
use txn_fixtures::fixture::{Fixture, all_is_applied};
use txn_fixtures::wire;
use txn_testkit::proxy::Point;

use super::{OPENING, Stage, soon, until};

/// The write of the transaction to one document is lost, and told; its others are written.
async fn replaced(fixture: &Fixture, at: txn_testkit::proxy::Matching) {
    let stage = Stage::on(fixture).await;
    let (hold, transfer) = stage.held(at, Point::Before).await;
    stage.replace(fixture, "a1", r#"{"balance":7}"#).await;
    hold.release();
    soon(transfer).await.expect("no panic").expect("it is committed");
    until("the damage", || !stage.log.damages().is_empty()).await;
    assert_eq!(stage.log.damaged(), ["a1"], "{:?}", stage.log);
    assert!(stage.log.damages()[0].1.contains("another client"), "{:?}", stage.log);
    until_unlocked(fixture, &stage, &["a0", "a2"]).await;
    assert_eq!(stage.balances().await, [Some(OPENING - 2), Some(7), Some(OPENING + 1)]);
    // The janitor names it as well, again and again.
    for _ in 0..2 {
        let report = stage.witness.janitor_pass().await.expect("passes");
        assert!(report.damaged.iter().any(|(key, _)| &*key.id == "a1"), "{report:?}");
    }
    // A person writes what is right, in a transaction, and the record can be finished.
    stage
        .witness
        .transact::<_, txn_core::Error, _>(async |tx| {
            tx.put(&stage.accounts, "a1", &bank::account(OPENING + 1))
        })
        .await
        .expect("the document is free");
    all_is_applied(&stage.witness).await;
    stage.spread().await.expect("goes on");
    let expected = [OPENING - 4, OPENING + 2, OPENING + 2].map(Some);
    assert_eq!(stage.balances().await, expected);
    stage.ends().await;
}

async fn until_unlocked(fixture: &Fixture, stage: &Stage, ids: &[&str]) {
    soon(async {
        for id in ids {
            while stage.source(fixture, id).await.is_some_and(|s| s.contains("transaction_tid")) {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        }
    })
    .await;
}

pub(crate) async fn a_full_replace_before_the_commit(fixture: &Fixture) {
    replaced(fixture, wire::commits()).await;
}

pub(crate) async fn a_full_replace_after_the_commit(fixture: &Fixture) {
    replaced(fixture, wire::applies()).await;
}

/// The owner knows that it has not applied its commit yet, and writes the document again.
pub(crate) async fn a_deletion_after_the_commit(fixture: &Fixture) {
    let stage = Stage::on(fixture).await;
    let (hold, transfer) = stage.held(wire::applies(), Point::Before).await;
    let path = format!("/{}/_doc/a1", stage.accounts.name());
    fixture.plain.ok("DELETE", &path, None).await;
    hold.release();
    soon(transfer).await.expect("no panic").expect("it is committed");
    until("the document", || !stage.log.damages().is_empty()).await;
    assert_eq!(stage.log.damaged(), ["a1"], "{:?}", stage.log);
    until_unlocked(fixture, &stage, &["a0", "a1", "a2"]).await;
    all_is_applied(&stage.witness).await;
    let expected = [OPENING - 2, OPENING + 1, OPENING + 1].map(Some);
    assert_eq!(stage.balances().await, expected);
    stage.ends().await;
}

/// Its content stays, and nobody could tell who may write it.
pub(crate) async fn a_lock_that_is_taken_off(fixture: &Fixture) {
    let stage = Stage::on(fixture).await;
    let (hold, transfer) = stage.held(wire::commits(), Point::Before).await;
    strip(fixture, &stage, "a1").await;
    hold.release();
    soon(transfer).await.expect("no panic").expect("it is committed");
    until("the damage", || !stage.log.damages().is_empty()).await;
    assert_eq!(stage.log.damaged(), ["a1"], "{:?}", stage.log);
    let report = stage.witness.janitor_pass().await.expect("passes");
    assert!(report.damaged.iter().any(|(key, _)| &*key.id == "a1"), "{report:?}");
    stage.ends().await;
}

/// The same, and somebody else's transaction writes the document before the first one is applied: its write is
/// lost under the other's, and that is told.
pub(crate) async fn a_lock_that_is_taken_off_and_another_transaction(fixture: &Fixture) {
    let stage = Stage::on(fixture).await;
    let (hold, transfer) = stage.held(wire::applies(), Point::Before).await;
    let committed = soon(transfer).await.expect("no panic").expect("it is committed");
    strip(fixture, &stage, "a1").await;
    // Two documents, so that it has a record; `a3` is new.
    stage
        .witness
        .transact::<_, txn_core::Error, _>(async |tx| {
            let found = tx.get(&stage.accounts, "a1").await?.expect("exists");
            tx.put(&stage.accounts, "a1", &bank::account(found.balance + 50))?;
            tx.insert(&stage.accounts, "a3", &bank::account(0))
        })
        .await
        .expect("nothing holds it up");
    hold.release();
    until_unlocked(fixture, &stage, &["a0", "a2"]).await;
    stage.domain.shutdown(txn_fixtures::fixture::PATIENCE).await;
    // The transfer's unit is not in `a1`, and somebody says so.
    assert_eq!(stage.balances().await[1], Some(OPENING + 50));
    let report = stage.witness.janitor_pass().await.expect("passes");
    let told = stage.log.damaged() == ["a1"] || stage.witness_log.damaged() == ["a1"];
    let tid = committed.tid.expect("a record");
    assert!(told, "the write of {tid} to a1 is lost, and nobody was told: {report:?}");
    stage.ends().await;
}

async fn strip(fixture: &Fixture, stage: &Stage, id: &str) {
    let source = stage.source(fixture, id).await.expect("exists");
    let mut document: serde_json::Value = serde_json::from_str(&source).expect("JSON");
    let fields = document.as_object_mut().expect("an object");
    fields.remove("transaction_tid").expect("it is locked");
    stage.replace(fixture, id, &document.to_string()).await;
}

async fn forge(fixture: &Fixture, stage: &Stage, id: &str, holder: &str) {
    let source = stage.source(fixture, id).await.expect("exists");
    let mut document: serde_json::Value = serde_json::from_str(&source).expect("JSON");
    document["transaction_tid"] = holder.into();
    stage.replace(fixture, id, &document.to_string()).await;
}

/// A tid of a transaction that never was: its lock is void.
pub(crate) async fn a_forged_lock_of_nobody(fixture: &Fixture) {
    let stage = Stage::on(fixture).await;
    let begun = stage.witness.begin(&Options::default()).expect("begins");
    let nobody = begun.tid();
    begun.rollback().await;
    soon(async { stage.spread().await.expect("moves") }).await;
    settle(&stage).await;
    forge(fixture, &stage, "a1", &nobody.to_string()).await;
    stage.spread().await.expect("gets through");
    settle(&stage).await;
    let expected = [OPENING - 4, OPENING + 2, OPENING + 2].map(Some);
    assert_eq!(stage.balances().await, expected);
    stage.ends().await;
}

/// A plain client brings a lock back that it read with the document: it belongs to a finished transaction that wrote this
/// document. What others wrote since is not undone.
pub(crate) async fn a_forged_lock_of_a_finished_transaction(fixture: &Fixture) {
    let stage = Stage::on(fixture).await;
    let first = stage.spread().await.expect("moves");
    settle(&stage).await;
    stage.spread().await.expect("moves");
    settle(&stage).await;
    let expected = [OPENING - 4, OPENING + 2, OPENING + 2].map(Some);
    assert_eq!(stage.balances().await, expected);
    forge(fixture, &stage, "a1", &first.tid.expect("a record").to_string()).await;
    assert_eq!(stage.balances().await, expected, "a reader is shown what is committed");
    let report = stage.witness.janitor_pass().await.expect("passes");
    let balances = stage.balances().await;
    let told = !stage.witness_log.damages().is_empty() || !report.damaged.is_empty();
    assert!(balances == expected || told, "{balances:?}, and nobody was told: {report:?}");
    stage.ends().await;
}

/// Everything that was committed is applied.
async fn settle(stage: &Stage) {
    all_is_applied(&stage.witness).await;
}
