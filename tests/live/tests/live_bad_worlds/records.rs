//! Records that an operator removes.

use txn_core::TransactionOutcome;
use txn_fixtures::fixture::{Fixture, all_is_applied};
use txn_fixtures::wire;
use txn_testkit::proxy::{FaultKind, Odds, Point, Schedule};

use super::{OPENING, Stage, soon, until};

/// Removes the record of a transaction as an operator would.
async fn remove(fixture: &Fixture, stage: &Stage, tid: txn_core::AttemptId) {
    let path = format!(
        "/txn-{}/_doc/{tid}?refresh=true",
        stage.domain.collection_name(&tid.day().to_string())
    );
    fixture.plain.ok("DELETE", &path, None).await;
}

/// The owner restores a removed record of its commit.
///
/// The owner knows its commit, writes documents and record, and reports the removal.
pub(crate) async fn removed_record_of_a_live_owner_is_restored(fixture: &Fixture) {
    let stage = Stage::on(fixture).await;
    let (hold, transfer) = stage.held(wire::applies(), Point::Before).await;
    let committed = soon(transfer).await.expect("no panic").expect("it is committed");
    remove(fixture, &stage, committed.tid.expect("a record")).await;
    hold.release();
    until("the damage", || !stage.log.damages().is_empty()).await;
    assert!(stage.log.damages()[0].1.contains("record was removed"), "{:?}", stage.log);
    assert_eq!(
        stage.log.damaged(),
        [committed.tid.expect("a record").to_string()],
        "the record is named"
    );
    assert!(stage.domain.shutdown(txn_fixtures::fixture::PATIENCE).await, "in order");
    let outcome = stage.witness.outcome(committed.tid.expect("a record")).await.expect("known");
    assert!(matches!(outcome, TransactionOutcome::Committed { .. }), "{outcome:?}");
    let expected = [OPENING - 2, OPENING + 1, OPENING + 1].map(Some);
    assert_eq!(stage.balances().await, expected);
    stage.spread().await.expect("goes on");
    stage.ends().await;
}

/// An operator removes the record of an abort by another process.
///
/// The other process has also released the locks. Nothing then prevents the commit, and each lost
/// write is reported.
pub(crate) async fn commit_after_a_removed_abort_reports_lost_writes(fixture: &Fixture) {
    let stage = Stage::on(fixture).await;
    let (hold, transfer) = stage.held(wire::commits(), Point::Before).await;
    all_is_applied(&stage.witness).await;
    let aborted = stage.witness_log.voided();
    let [tid] = aborted[..] else { panic!("one was aborted: {aborted:?}") };
    remove(fixture, &stage, tid).await;
    hold.release();
    let committed = soon(transfer).await.expect("no panic").expect("it is committed");
    assert_eq!(committed.tid, Some(tid), "by the same attempt");
    until("the damage", || stage.log.damaged() == stage.names).await;
    assert_eq!(stage.balances().await, [Some(OPENING); 3]);
    let report = stage.witness.admin().janitor_pass().await.expect("passes");
    // The report names the first document for the record.
    let named = report.damaged.iter().any(|(key, _)| stage.names.contains(&key.id.to_string()));
    assert!(named, "{report:?}");
    stage.ends().await;
}

/// All writes are undone, because the commit is unknown.
///
/// The owner seems dead.
///
/// Each released lock is reported.
pub(crate) async fn removed_record_of_a_dead_owner_is_undone(fixture: &Fixture) {
    let stage = Stage::on(fixture).await;
    let (hold, transfer) = stage.held(wire::applies(), Point::Before).await;
    let committed = soon(transfer).await.expect("no panic").expect("it is committed");
    // From now on no request of the owner arrives.
    let nothing = Odds::none().with(FaultKind::CutBefore, 1.0);
    stage.proxy.set_schedule(Schedule::new(0, nothing));
    hold.discard();
    remove(fixture, &stage, committed.tid.expect("a record")).await;
    let report = stage.witness.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean() && report.recovered > 0, "{report:?}");
    assert_eq!(
        stage.witness_log.voided(),
        [committed.tid.expect("a record")],
        "{:?}",
        stage.witness_log
    );
    assert_eq!(stage.balances().await, [Some(OPENING); 3]);
    let outcome = stage.witness.outcome(committed.tid.expect("a record")).await.expect("known");
    assert_eq!(outcome, TransactionOutcome::Aborted);
    stage.spread().await.expect("goes on");
    // The owner was cut off, not dead: its further tries are harmless.
    stage.proxy.clear();
    stage.domain.shutdown(txn_fixtures::fixture::PATIENCE).await;
    let expected = [OPENING - 2, OPENING + 1, OPENING + 1].map(Some);
    assert_eq!(stage.balances().await, expected, "only the writes of the witness");
    stage.ends().await;
}
