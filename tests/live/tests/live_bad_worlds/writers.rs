//! Plain clients that write locked documents.

use txn_core::Options;
use txn_fixtures::bank;
use txn_fixtures::fixture::{Fixture, all_is_applied};
use txn_fixtures::wire;
use txn_testkit::proxy::Point;

use super::{OPENING, Stage, soon, until};

/// A replaced write is lost and reported.
///
/// The transaction's other writes happen.
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
    // The janitor reports the damage in each pass.
    for _ in 0..2 {
        let report = stage.witness.admin().janitor_pass().await.expect("passes");
        assert!(report.damaged.iter().any(|(key, _)| &*key.id == "a1"), "{report:?}");
    }
    // An operator writes the right content in a transaction, and the record can be finished.
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

pub(crate) async fn full_replace_before_the_commit(fixture: &Fixture) {
    replaced(fixture, wire::commits()).await;
}

pub(crate) async fn full_replace_after_the_commit(fixture: &Fixture) {
    replaced(fixture, wire::applies()).await;
}

/// The owner writes a deleted document again.
///
/// The owner knows that its commit is not applied.
pub(crate) async fn deletion_after_the_commit(fixture: &Fixture) {
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

/// The content stays, and no process can decide about the document.
pub(crate) async fn removed_lock_keeps_the_content(fixture: &Fixture) {
    let stage = Stage::on(fixture).await;
    let (hold, transfer) = stage.held(wire::commits(), Point::Before).await;
    strip(fixture, &stage, "a1").await;
    hold.release();
    soon(transfer).await.expect("no panic").expect("it is committed");
    until("the damage", || !stage.log.damages().is_empty()).await;
    assert_eq!(stage.log.damaged(), ["a1"], "{:?}", stage.log);
    let report = stage.witness.admin().janitor_pass().await.expect("passes");
    assert!(report.damaged.iter().any(|(key, _)| &*key.id == "a1"), "{report:?}");
    stage.ends().await;
}

/// Another transaction writes the document before the first one is applied.
///
/// The first write is lost under the second one, and the loss is reported.
pub(crate) async fn removed_lock_and_another_transaction(fixture: &Fixture) {
    let stage = Stage::on(fixture).await;
    let (hold, transfer) = stage.held(wire::applies(), Point::Before).await;
    let committed = soon(transfer).await.expect("no panic").expect("it is committed");
    strip(fixture, &stage, "a1").await;
    // Two documents, so that the transaction has a record; `a3` is new.
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
    // The unit of the transfer is missing in `a1`, and a process reports the loss.
    assert_eq!(stage.balances().await[1], Some(OPENING + 50));
    let report = stage.witness.admin().janitor_pass().await.expect("passes");
    let told = stage.log.damaged() == ["a1"] || stage.witness_log.damaged() == ["a1"];
    let tid = committed.tid.expect("a record");
    assert!(told, "the write of {tid} to a1 is lost, and no report names it: {report:?}");
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

/// The tid of a transaction that never existed: its lock is void.
pub(crate) async fn forged_lock_of_an_unknown_transaction(fixture: &Fixture) {
    let stage = Stage::on(fixture).await;
    let options = Options::default().with_own_record(true);
    let begun = stage.witness.begin(&options).expect("begins");
    let stranger = begun.tid().expect("has its own record");
    begun.rollback().await;
    soon(async { stage.spread().await.expect("moves") }).await;
    settle(&stage).await;
    forge(fixture, &stage, "a1", &stranger.to_string()).await;
    stage.spread().await.expect("gets through");
    settle(&stage).await;
    let expected = [OPENING - 4, OPENING + 2, OPENING + 2].map(Some);
    assert_eq!(stage.balances().await, expected);
    stage.ends().await;
}

/// A plain client restores the lock of a finished transaction.
///
/// The transaction wrote this document.
///
/// Later writes of other transactions stay.
pub(crate) async fn forged_lock_of_a_finished_transaction(fixture: &Fixture) {
    let stage = Stage::on(fixture).await;
    let first = stage.spread().await.expect("moves");
    settle(&stage).await;
    stage.spread().await.expect("moves");
    settle(&stage).await;
    let expected = [OPENING - 4, OPENING + 2, OPENING + 2].map(Some);
    assert_eq!(stage.balances().await, expected);
    forge(fixture, &stage, "a1", &first.tid.expect("a record").to_string()).await;
    assert_eq!(stage.balances().await, expected, "a reader is shown what is committed");
    let report = stage.witness.admin().janitor_pass().await.expect("passes");
    let balances = stage.balances().await;
    let told = !stage.witness_log.damages().is_empty() || !report.damaged.is_empty();
    assert!(balances == expected || told, "{balances:?}, and no report names it: {report:?}");
    stage.ends().await;
}

/// Waits until every commit is applied.
async fn settle(stage: &Stage) {
    all_is_applied(&stage.witness).await;
}
