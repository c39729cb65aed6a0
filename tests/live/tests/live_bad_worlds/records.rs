//! Records that are removed by hand.

use txn_core::TransactionOutcome;
use txn_fixtures::fixture::{Fixture, all_is_applied};
use txn_fixtures::wire;
use txn_testkit::proxy::{FaultKind, Odds, Point, Schedule};

use super::{OPENING, Stage, soon, until};

/// Removes the record of a transaction as a person would.
async fn remove(fixture: &Fixture, stage: &Stage, tid: txn_core::AttemptId) {
    let path = format!(
        "/txn-{}/_doc/{tid}?refresh=true",
        stage.domain.collection_name(&tid.day().to_string())
    );
    fixture.plain.ok("DELETE", &path, None).await;
}

/// Its owner knows what was committed, writes it and the record, and says that it was gone.
pub(crate) async fn a_record_that_is_removed_while_its_owner_lives(fixture: &Fixture) {
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

/// Others have aborted it and taken its locks off, and a person removes the record that says so: then nothing
/// keeps it from committing, and each write that is lost by that is told.
pub(crate) async fn the_record_of_an_abort_that_is_removed_before_the_commit(fixture: &Fixture) {
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
    let report = stage.witness.janitor_pass().await.expect("passes");
    // The report names the first of them, for the record.
    let named = report.damaged.iter().any(|(key, _)| stage.names.contains(&key.id.to_string()));
    assert!(named, "{report:?}");
    stage.ends().await;
}

/// With the owner dead by all appearances, nobody knows any more that it was committed: it is undone, whole, and each lock that is
/// taken off is told.
pub(crate) async fn a_record_that_is_removed_when_its_owner_is_dead(fixture: &Fixture) {
    let stage = Stage::on(fixture).await;
    let (hold, transfer) = stage.held(wire::applies(), Point::Before).await;
    let committed = soon(transfer).await.expect("no panic").expect("it is committed");
    // Nothing leaves the owner any more.
    let nothing = Odds::none().with(FaultKind::CutBefore, 1.0);
    stage.proxy.set_schedule(Schedule::new(0, nothing));
    hold.discard();
    remove(fixture, &stage, committed.tid.expect("a record")).await;
    let report = stage.witness.janitor_pass().await.expect("passes");
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
    // It was not dead, but cut off: if it still tries, it does no harm.
    stage.proxy.clear();
    stage.domain.shutdown(txn_fixtures::fixture::PATIENCE).await;
    let expected = [OPENING - 2, OPENING + 1, OPENING + 1].map(Some);
    assert_eq!(stage.balances().await, expected, "only what others wrote");
    stage.ends().await;
}
