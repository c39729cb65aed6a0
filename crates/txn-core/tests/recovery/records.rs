//! Records that a plain client deletes while the transaction holds its locks.

use std::sync::atomic::Ordering;
use std::time::Duration;

use txn_core::event::Event;
use txn_core::{AttemptId, LockMode, Options, TransactionOutcome, record::State};

use crate::support::processes::ids;
use crate::support::{Dies, Item, Plain, Process, SharedStore, fresh_tid, record_key, recorded};

async fn delete_record(w: &SharedStore, tid: AttemptId) {
    w.memory.delete(&record_key(tid)).await;
}

/// Returns whether each attempt that recovery aborted had a record.
fn voided(p: &Process) -> Vec<bool> {
    p.log.of(|event| match event {
        Event::AbortedByRecovery { recorded, .. } => Some(*recorded),
        _ => None,
    })
}

#[tokio::test(start_paused = true)]
async fn holder_without_a_record_is_reported_as_such() {
    cov_mark::check!(dead_holder_without_a_record);
    cov_mark::check!(dead_holder_with_a_record);
    let w = SharedStore::of(2).await;
    let tid = w.left_by_the_dead(2, Dies::AfterCommit, false).await;
    delete_record(&w, tid).await;
    let p = w.process(Dies::Never).await;
    assert!(p.domain.admin().janitor_pass().await.expect("passes").is_clean());
    assert_eq!(voided(&p), [false], "the transaction may have been committed");
    assert_eq!(p.values(2).await, [Some(1), Some(1)]);

    let dead = w.process(Dies::BeforeCommit).await;
    let tx =
        dead.domain.begin(&Options::default().with_lock_mode(LockMode::AtRead)).expect("begins");
    tx.get_many(&dead.items, ids(2)).await.expect("locks");
    for id in ids(2) {
        tx.put(&dead.items, id.as_str(), &Item { n: 3 }).expect("buffers");
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    tx.commit().await.expect_err("the process is dead");
    assert!(p.domain.admin().janitor_pass().await.expect("passes").is_clean());
    assert_eq!(voided(&p), [false, true], "the record was pending");
}

/// Commits 2 to two documents. From the commit on, the store refuses the owner's applies.
pub(super) async fn held_back(w: &SharedStore) -> (Process, AttemptId) {
    let owner = w.process(Dies::HeldBackAfterCommit).await;
    let tx = owner.domain.begin(&recorded()).expect("begins");
    for id in ids(2) {
        tx.get(&owner.items, id.as_str()).await.expect("reads");
        tx.put(&owner.items, id.as_str(), &Item { n: 2 }).expect("buffers");
    }
    let tid = tx.tid().expect("has its own record");
    tx.commit().await.expect("commits");
    (owner, tid)
}

#[tokio::test(start_paused = true)]
async fn delayed_owner_rewrites_its_deleted_record() {
    let w = SharedStore::of(2).await;
    let (owner, tid) = held_back(&w).await;
    delete_record(&w, tid).await;
    let other = w.process(Dies::Never).await;
    other.domain.admin().janitor_pass().await.expect("passes");
    assert!(voided(&other).is_empty(), "the owner counts as alive");
    assert_eq!(owner.values(2).await, [Some(2), Some(2)]);
    owner.held_back.store(false, Ordering::SeqCst);
    owner.domain.shutdown(Duration::from_secs(30)).await;
    assert_eq!(other.values(2).await, [Some(2), Some(2)]);
    let outcome = other.domain.outcome(tid).await.expect("known");
    assert!(matches!(outcome, TransactionOutcome::Committed { .. }), "the outcome stays committed");
    assert_eq!(owner.log.damaged(), [record_key(tid)], "the damage is reported");
}

/// No process found the locks in between. The commit is applied when the owner finds the record
/// missing.
#[tokio::test(start_paused = true)]
async fn owner_rewrites_a_deleted_record_after_the_apply() {
    cov_mark::check!(committed_record_was_removed);
    let w = SharedStore::of(2).await;
    let (owner, tid) = held_back(&w).await;
    delete_record(&w, tid).await;
    owner.held_back.store(false, Ordering::SeqCst);
    assert!(owner.domain.shutdown(Duration::from_secs(30)).await, "drained");
    assert_eq!(owner.values(2).await, [Some(2), Some(2)]);
    let outcome = w.process(Dies::Never).await.domain.outcome(tid).await.expect("known");
    assert!(matches!(outcome, TransactionOutcome::Committed { .. }), "the outcome stays committed");
    assert_eq!(owner.log.damaged(), [record_key(tid)], "the damage is reported");
}

/// Another process aborted the transaction between two reads of the owner.
///
/// The record had been removed before.
#[tokio::test(start_paused = true)]
async fn owner_reports_its_commit_found_aborted() {
    cov_mark::check!(committed_record_was_replaced);
    let w = SharedStore::of(2).await;
    let (owner, tid) = held_back(&w).await;
    let record = record_key(tid);
    let aborted = format!(
        "{{\"state\":\"aborted\",\"tid\":\"{tid}\",\"attempt\":0,\"coordinator\":\"x\",\"created_at\":0,\"modified_at\":0}}"
    );
    w.memory.overwrite(&record, &aborted).await;
    owner.held_back.store(false, Ordering::SeqCst);
    assert!(!owner.domain.shutdown(Duration::from_secs(30)).await, "not drained");
    assert_eq!(owner.values(2).await, [Some(2), Some(2)], "the caller received Ok");
    assert_eq!(owner.log.damaged(), [record]);
}

/// Only the record of the transaction is left. No lock is left, or no lock was written.
#[tokio::test(start_paused = true)]
async fn pending_record_without_a_lock_is_aborted() {
    let w = SharedStore::of(2).await;
    let p = w.process(Dies::Never).await;
    let tid = fresh_tid(&p.domain);
    w.memory.create_record(tid, State::Pending, "").await;
    let report = p.domain.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean() && report.recovered == 1, "{report:?}");
    assert_eq!(voided(&p), [true]);
}
