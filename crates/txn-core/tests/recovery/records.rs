//! Records that somebody deletes while the locks of their transactions stand.

use std::sync::atomic::Ordering;
use std::time::Duration;

use txn_core::event::Event;
use txn_core::store::{Write, WriteOp};
use txn_core::{AttemptId, Options, TransactionOutcome};

use super::shop::{Dies, Item, Process, Shop, ids};

async fn delete_record(w: &Shop, tid: AttemptId) {
    let key = Shop::record_key(tid);
    let (version, _) = w.stored(&key).await.expect("a record");
    w.write(Write::new(key, WriteOp::Delete(version))).await;
}

/// Whether each that was taken for dead had a record.
fn voided(p: &Process) -> Vec<bool> {
    p.log.of(|event| match event {
        Event::AbortedByRecovery { recorded, .. } => Some(*recorded),
        _ => None,
    })
}

#[tokio::test(start_paused = true)]
async fn a_holder_without_a_record_is_told_apart() {
    cov_mark::check!(dead_holder_without_a_record);
    cov_mark::check!(dead_holder_with_a_record);
    let w = Shop::of(2).await;
    let tid = w.left_by_the_dead(2, Dies::AfterCommit, false).await;
    delete_record(&w, tid).await;
    let p = w.process(Dies::Never).await;
    assert!(p.domain.janitor_pass().await.expect("passes").is_clean());
    assert_eq!(voided(&p), [false], "it may have been committed");
    assert_eq!(p.values(2).await, [Some(1), Some(1)]);

    let dead = w.process(Dies::BeforeCommit).await;
    let tx = dead.domain.begin(&Options::default().with_pessimistic(true)).expect("begins");
    tx.get_many(&dead.items, ids(2)).await.expect("locks");
    for id in ids(2) {
        tx.put(&dead.items, id.as_str(), &Item { n: 3 }).expect("takes it");
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    tx.commit().await.expect_err("dies");
    assert!(p.domain.janitor_pass().await.expect("passes").is_clean());
    assert_eq!(voided(&p), [false, true], "it was pending");
}

/// Two documents are set to 2; the owner cannot write to them from its commit on.
pub(super) async fn held_back(w: &Shop) -> (Process, AttemptId) {
    let owner = w.process(Dies::HeldBackAfterCommit).await;
    let tx = owner.domain.begin(&Options::default()).expect("begins");
    for id in ids(2) {
        tx.get(&owner.items, id.as_str()).await.expect("reads");
        tx.put(&owner.items, id.as_str(), &Item { n: 2 }).expect("takes it");
    }
    let tid = tx.tid();
    tx.commit().await.expect("commits");
    (owner, tid)
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_is_held_up_writes_its_record_again() {
    let w = Shop::of(2).await;
    let (owner, tid) = held_back(&w).await;
    delete_record(&w, tid).await;
    let other = w.process(Dies::Never).await;
    other.domain.janitor_pass().await.expect("passes");
    assert!(voided(&other).is_empty(), "nobody took it for dead");
    assert_eq!(owner.values(2).await, [Some(2), Some(2)]);
    owner.frail.held_back.store(false, Ordering::SeqCst);
    owner.domain.shutdown(Duration::from_secs(30)).await;
    assert_eq!(other.values(2).await, [Some(2), Some(2)]);
    let outcome = other.domain.outcome(tid).await.expect("known");
    assert!(matches!(outcome, TransactionOutcome::Committed { .. }), "it is known as what it is");
    assert_eq!(owner.log.damaged(), [Shop::record_key(tid)], "it is told");
}

/// Nobody met it in between: it is applied when its record is found to be missing.
#[tokio::test(start_paused = true)]
async fn an_owner_that_is_done_writes_its_record_again() {
    cov_mark::check!(committed_record_was_removed);
    let w = Shop::of(2).await;
    let (owner, tid) = held_back(&w).await;
    delete_record(&w, tid).await;
    owner.frail.held_back.store(false, Ordering::SeqCst);
    assert!(owner.domain.shutdown(Duration::from_secs(30)).await, "in order");
    assert_eq!(owner.values(2).await, [Some(2), Some(2)]);
    let outcome = w.process(Dies::Never).await.domain.outcome(tid).await.expect("known");
    assert!(matches!(outcome, TransactionOutcome::Committed { .. }), "it is known as what it is");
    assert_eq!(owner.log.damaged(), [Shop::record_key(tid)], "it is told");
}

/// The record was removed and the transaction aborted by others, all between two looks of the owner.
#[tokio::test(start_paused = true)]
async fn an_owner_that_finds_its_commit_aborted_tells_it() {
    cov_mark::check!(committed_record_was_replaced);
    let w = Shop::of(2).await;
    let (owner, tid) = held_back(&w).await;
    let record = Shop::record_key(tid);
    let aborted = format!(
        "{{\"state\":\"aborted\",\"tid\":\"{tid}\",\"attempt\":0,\"coordinator\":\"x\",\"created_at\":0,\"modified_at\":0}}"
    );
    w.plainly(&record, &aborted).await;
    owner.frail.held_back.store(false, Ordering::SeqCst);
    assert!(!owner.domain.shutdown(Duration::from_secs(30)).await, "not in order");
    assert_eq!(owner.values(2).await, [Some(2), Some(2)], "its caller was told so");
    assert_eq!(owner.log.damaged(), [record]);
}

/// Its locks are off, or never stood: only the record is left of it.
#[tokio::test(start_paused = true)]
async fn an_open_record_without_a_lock_is_decided_once_its_owner_is_dead() {
    let w = Shop::of(2).await;
    let p = w.process(Dies::Never).await;
    let tx = p.domain.begin(&Options::default()).expect("begins");
    let tid = tx.tid();
    drop(tx);
    let pending = format!(
        "{{\"state\":\"pending\",\"tid\":\"{tid}\",\"attempt\":0,\"coordinator\":\"x\",\"created_at\":0,\"modified_at\":0}}"
    );
    let key = Shop::record_key(tid);
    let create = WriteOp::Create(pending.into());
    w.write(Write { key, require_alias: true, op: create }).await;
    let report = p.domain.janitor_pass().await.expect("passes");
    assert!(report.is_clean() && report.recovered == 1, "{report:?}");
    assert_eq!(voided(&p), [true]);
}
