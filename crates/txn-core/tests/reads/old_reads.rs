//! Writes on old reads.
//!
//! The engine verifies an old read before the write, so a stale write is refused for certain.

use std::time::Duration;

use txn_core::{CompareAndSet, Error, ErrorKind, LockMode, Options, ReadMode};

use crate::support::{Dies, Item, Plain, Process, SharedStore};

const THOUGHT: Duration = Duration::from_millis(50);

async fn delete(p: &Process, id: &str) {
    let delete = async |tx: &txn_core::Transaction| tx.delete(&p.items, id);
    let options = Options::default().with_wait_for(txn_core::WaitFor::Apply);
    p.domain.run::<_, Error, _>(&options, delete).await.expect("deletes");
}

async fn set_often(p: &Process, id: &str) {
    for n in 0..70 {
        let set = async |tx: &txn_core::Transaction| {
            tx.get(&p.items, id).await?;
            tx.put(&p.items, id, &Item { n })
        };
        p.domain.transact::<_, Error, _>(set).await.expect("writes");
    }
}

#[tokio::test(start_paused = true)]
async fn put_of_a_deleted_document_is_a_conflict() {
    let w = SharedStore::of(2).await;
    let p = w.process(Dies::Never).await;
    let tx = p.domain.begin(&Options::default()).expect("begins");
    tx.get(&p.items, "d0000").await.expect("reads");
    delete(&p, "d0000").await;
    tokio::time::sleep(THOUGHT).await;
    tx.put(&p.items, "d0000", &Item { n: 2 }).expect("buffers");
    let error = tx.commit().await.expect_err("the document is deleted");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(p.values(1).await, [None]);
}

/// The second run finds no document.
#[tokio::test(start_paused = true)]
async fn slow_closure_with_an_old_read_runs_again() {
    cov_mark::check!(old_read_of_a_single_write);
    let w = SharedStore::of(2).await;
    let p = w.process(Dies::Never).await;
    let set = p.domain.transact::<_, Error, _>(async |tx| {
        let before = tx.get(&p.items, "d0000").await?;
        if before.is_some() {
            delete(&p, "d0000").await;
            tokio::time::sleep(THOUGHT).await;
        }
        tx.put(&p.items, "d0000", &Item { n: before.map_or(10, |item| item.n + 1) })
    });
    set.await.expect("writes");
    assert_eq!(p.values(1).await, [Some(10)]);
}

#[tokio::test(start_paused = true)]
async fn compare_and_set_of_an_old_read_is_a_mismatch() {
    let w = SharedStore::of(2).await;
    let p = w.process(Dies::Never).await;
    for (id, deleted) in [("d0000", false), ("d0001", true)] {
        let snapshot = p.domain.reader().read(&p.items, id).await.expect("reads");
        if deleted {
            delete(&p, id).await;
        } else {
            set_often(&p, id).await;
        }
        tokio::time::sleep(THOUGHT).await;
        let swap = p.domain.compare_and_set(&p.items, &snapshot, &Item { n: 77 }).await;
        assert_eq!(swap.expect("answers"), CompareAndSet::Mismatch, "{id}");
    }
    assert_eq!(p.values(2).await, [Some(69), None]);
}

#[tokio::test(start_paused = true)]
async fn only_an_old_read_costs_one_more_request() {
    let w = SharedStore::of(1).await;
    let p = w.process(Dies::Never).await;
    for (thought, verifies) in [(Duration::ZERO, 0), (THOUGHT, 1)] {
        let snapshot = p.domain.reader().read(&p.items, "d0000").await.expect("reads");
        tokio::time::sleep(thought).await;
        let (swap, counts) =
            p.cost(p.domain.compare_and_set(&p.items, &snapshot, &Item { n: 2 })).await;
        assert!(matches!(swap, Ok(CompareAndSet::Written(_))), "{swap:?}");
        let asked = (counts.requests(), counts.documents_written, counts.verifies);
        assert_eq!(asked, (1 + verifies, 1, verifies), "{counts}");
    }
}

/// A document of a plain client has no list of recent commits. Such a list settles writes without
/// a record.
#[tokio::test(start_paused = true)]
async fn second_set_of_a_plain_document_is_a_mismatch() {
    cov_mark::check!(plain_document_is_set_by_a_record);
    let w = SharedStore::of(1).await;
    let p = w.process(Dies::Never).await;
    w.memory.overwrite(&p.items.key("plain"), r#"{"n":1}"#).await;
    let read = async || p.domain.reader().read(&p.items, "plain").await.expect("reads");
    let (one, other) = (read().await, read().await);
    let set = async |snapshot, n| p.domain.compare_and_set(&p.items, snapshot, &Item { n }).await;
    assert!(matches!(set(&one, 2).await, Ok(CompareAndSet::Written(_))));
    assert_eq!(set(&other, 3).await.expect("the outcome is known"), CompareAndSet::Mismatch);
    assert_eq!(read().await.value, Some(Item { n: 2 }));
}

/// Another process locks `d0000`, and releases the lock without a change.
async fn lock_comes_and_goes(other: &Process) {
    let pessimistic = Options::default().with_lock_mode(LockMode::AtRead);
    let tx = other.domain.begin(&pessimistic).expect("begins");
    tx.get(&other.items, "d0000").await.expect("locks");
    tx.rollback().await;
}

/// Another process commits a transaction that only reads `d0000`, under a lock.
async fn is_read_under_a_lock(other: &Process) {
    let options = Options::default().with_read_mode(ReadMode::Lock);
    let read = other.domain.run::<_, Error, _>(&options, async |tx| {
        tx.get(&other.items, "d0000").await?;
        tx.put(&other.items, "d0001", &Item { n: 5 })
    });
    read.await.expect("commits");
}

#[tokio::test(start_paused = true)]
async fn released_lock_is_no_mismatch() {
    for (reads, thinks) in [(false, false), (true, false), (false, true), (true, true)] {
        let w = SharedStore::of(2).await;
        let (p, other) = (w.process(Dies::Never).await, w.process(Dies::Never).await);
        let before = w.memory.stored(&p.items.key("d0000")).await.expect("exists");
        let snapshot = p.domain.reader().read(&p.items, "d0000").await.expect("reads");
        if reads {
            is_read_under_a_lock(&other).await;
        } else {
            lock_comes_and_goes(&other).await;
        }
        if thinks {
            tokio::time::sleep(THOUGHT).await;
        }
        let after = w.memory.stored(&p.items.key("d0000")).await.expect("exists");
        assert_ne!(before.0, after.0, "the store's version moved");
        let set = p.domain.compare_and_set(&p.items, &snapshot, &Item { n: 7 }).await;
        assert!(matches!(set, Ok(CompareAndSet::Written(_))), "{reads} {thinks}: {set:?}");
        let again = p.domain.compare_and_set(&p.items, &snapshot, &Item { n: 8 }).await;
        assert_eq!(again.expect("answers"), CompareAndSet::Mismatch);
        assert_eq!(p.values(1).await, [Some(7)]);
    }
}

#[tokio::test(start_paused = true)]
async fn compare_and_set_waits_for_the_holder() {
    for changes in [false, true] {
        let w = SharedStore::of(2).await;
        let (p, other) = (w.process(Dies::Never).await, w.process(Dies::Never).await);
        let pessimistic = Options::default().with_lock_mode(LockMode::AtRead);
        let tx = other.domain.begin(&pessimistic).expect("begins");
        tx.get(&other.items, "d0000").await.expect("locks");
        let snapshot = p.domain.reader().read(&p.items, "d0000").await.expect("reads");
        let set = p.domain.compare_and_set(&p.items, &snapshot, &Item { n: 7 });
        let ends = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if changes {
                tx.put(&other.items, "d0000", &Item { n: 5 }).expect("buffers");
                tx.commit().await.expect("commits");
            } else {
                tx.rollback().await;
            }
        };
        let (set, ()) = tokio::join!(set, ends);
        let set = set.expect("answers");
        assert_eq!(set == CompareAndSet::Mismatch, changes, "{set:?}");
        assert_eq!(p.values(1).await, [Some(if changes { 5 } else { 7 })]);
    }
}

#[tokio::test(start_paused = true)]
async fn same_bytes_of_another_commit_are_a_mismatch() {
    let w = SharedStore::of(1).await;
    let p = w.process(Dies::Never).await;
    let read = async || p.domain.reader().read(&p.items, "d0000").await.expect("reads");
    let set = async |snapshot, n| p.domain.compare_and_set(&p.items, snapshot, &Item { n }).await;
    let snapshot = read().await;
    p.put_all(1, 1).await.expect("writes the same");
    assert_eq!(set(&snapshot, 7).await.expect("answers"), CompareAndSet::Mismatch);
    // A plain client changes the content and keeps the commit version.
    let snapshot = read().await;
    let key = p.items.key("d0000");
    let (_, source) = w.memory.stored(&key).await.expect("exists");
    w.memory.overwrite(&key, &source.replace("\"n\":1", "\"n\":6")).await;
    assert_eq!(set(&snapshot, 7).await.expect("answers"), CompareAndSet::Mismatch);
    assert_eq!(p.values(1).await, [Some(6)]);
}
