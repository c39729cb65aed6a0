//! Participants of a committed transaction, each applied independently.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use txn_core::store::{Key, Outcome, Store};
use txn_core::{Committed, Error, ErrorKind, LockMode, Options, record::State};
use txn_sim::{Closed, Fate, Step};

use crate::support::script::is_apply;
use crate::support::{Dies, Item, Plain, SharedStore};

#[tokio::test(start_paused = true)]
async fn dropped_collection_keeps_no_other_document_locked() {
    for janitor in [false, true] {
        let w = SharedStore::of(2).await;
        let tid = w.left_by_the_dead(2, Dies::AfterCommit, true).await;
        w.memory.drop_collection("other").await.expect("drops");
        let p = w.process(Dies::Never).await;
        if janitor {
            let report = p.domain.admin().janitor_pass().await.expect("passes");
            assert!(report.locked.is_empty(), "{report:?}");
            let lost = Key::new("other", "x");
            assert!(report.damaged.iter().any(|(key, _)| *key == lost), "{report:?}");
            assert_eq!(p.values(2).await, [Some(2), Some(2)]);
        } else {
            p.put_all(2, 3).await.expect("the documents can be written");
            assert_eq!(p.values(2).await, [Some(3), Some(3)]);
            // A single answer may come from a lagging node, so a later pass reports the loss.
            p.domain.admin().janitor_pass().await.expect("passes");
        }
        assert!(p.log.damaged().contains(&Key::new("other", "x")));
        let report = p.domain.admin().janitor_pass().await.expect("passes");
        assert_eq!(report.recovered, 0, "nothing more can be done: {report:?}");
        assert!(w.memory.is_in_state(tid, State::Committed).await, "the record stays open");
    }
}

/// The requester commits although each of its touches meets a conflict.
///
/// Another process applies the commit meanwhile. Other transactions write the documents very fast.
#[tokio::test(start_paused = true)]
async fn requester_needs_no_proof_of_an_apply_by_others() {
    cov_mark::check!(help_ends_at_a_contended_document);
    let w = SharedStore::of(2).await;
    w.left_by_the_dead(2, Dies::AfterCommit, false).await;
    let (p, fast) = (w.process(Dies::Never).await, w.process(Dies::Never).await.domain.clone());
    let applied = AtomicBool::new(false);
    p.store.before(move |call| {
        if !call.writes(is_apply) || applied.swap(true, Ordering::SeqCst) {
            return Step::pass();
        }
        let fast = fast.clone();
        Step::wait(async move {
            fast.admin().janitor_pass().await.expect("passes");
        })
    });
    p.store.play(|write| match is_apply(write) {
        true => Fate::RefuseWith(Outcome::Conflict),
        false => Fate::Pass,
    });
    let items = &p.items;
    let options = Options::default();
    let written = p.domain.run::<_, Error, _>(&options, async |tx| {
        tx.get_many(items, ["d0000", "d0001"]).await?;
        tx.put(items, "d0000", &Item { n: 3 })?;
        tx.put(items, "d0001", &Item { n: 3 })
    });
    assert_eq!(written.await.expect("commits").receipt.attempts, 1);
    assert_eq!(p.values(2).await, [Some(3), Some(3)]);
}

/// The owner deleted one participant and died before the other apply.
///
/// An attempt that locks the first document and rolls the second forward finds its own lock.
#[tokio::test(start_paused = true)]
async fn roll_forward_does_not_wound_its_own_attempt() {
    let w = SharedStore::of(2).await;
    let dead = w.process(Dies::AfterCommit).await;
    let (gone, kept) = ("d0000", "d0001");
    let tx = dead.domain.begin(&Options::default()).expect("begins");
    tx.delete(&dead.items, gone).expect("buffers");
    tx.put(&dead.items, kept, &Item { n: 2 }).expect("buffers");
    tx.commit().await.expect("commits");
    let key = Key::new("items", gone);
    w.memory.delete(&key).await;
    let p = w.process(Dies::Never).await;
    let pessimistic = Options::default().with_lock_mode(LockMode::AtRead);
    let items = &p.items;
    let receipt = p.domain.run::<_, Error, _>(&pessimistic, async |tx| {
        assert_eq!(tx.get(items, gone).await?, None);
        assert_eq!(tx.get(items, kept).await?, Some(Item { n: 2 }));
        tx.put(items, kept, &Item { n: 3 })
    });
    let Committed { receipt, .. } = receipt.await.expect("commits");
    assert_eq!(receipt.attempts, 1);
}

#[tokio::test(start_paused = true)]
async fn collection_missing_for_long_counts_as_gone() {
    let w = SharedStore::of(2).await;
    let tid = w.left_by_the_dead(2, Dies::AfterCommit, true).await;
    w.memory.drop_collection("other").await.expect("drops");
    let p = w.process(Dies::Never).await;
    for _ in 0..3 {
        p.domain.admin().janitor_pass().await.expect("passes");
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert!(w.memory.is_in_state(tid, State::Committed).await, "a node may lag");
    }
    tokio::time::sleep(Duration::from_secs(600)).await;
    let report = p.domain.admin().janitor_pass().await.expect("passes");
    assert!(report.open.is_empty(), "{report:?}");
    assert!(w.memory.is_in_state(tid, State::Finished).await, "the day can be dropped");
}

#[tokio::test(start_paused = true)]
async fn closed_collection_keeps_no_other_document_locked() {
    for janitor in [false, true] {
        let w = SharedStore::of(2).await;
        let tid = w.left_by_the_dead(2, Dies::AfterCommit, true).await;
        w.store.close("other", Closed::Documents);
        let p = w.process(Dies::Never).await;
        if janitor {
            let report = p.domain.admin().janitor_pass().await.expect("passes");
            let locked: Vec<&str> = report.locked.iter().map(|(key, _)| &*key.collection).collect();
            assert_eq!(locked, ["other"], "{report:?}");
            assert_eq!(p.values(2).await, [Some(2), Some(2)]);
        } else {
            let began = tokio::time::Instant::now();
            p.put_all(2, 3).await.expect("the documents can be written");
            assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        }
        assert!(w.memory.is_in_state(tid, State::Committed).await, "the record stays open");
        w.store.reopen("other");
        let report = p.domain.admin().janitor_pass().await.expect("passes");
        assert!(report.is_clean(), "{report:?}");
        assert!(w.memory.is_in_state(tid, State::Finished).await);
        let (_, source) = w.memory.stored(&Key::new("other", "x")).await.expect("applied");
        assert!(source.contains("\"n\":2"), "{source}");
    }
}

#[tokio::test(start_paused = true)]
async fn damaged_participant_keeps_no_other_locked() {
    for garbage in ["{\"transaction_version\":7}", "{\"n\":99}"] {
        let w = SharedStore::of(3).await;
        let tid = w.left_by_the_dead(3, Dies::AfterCommit, false).await;
        let p = w.process(Dies::Never).await;
        let damaged = p.items.key("d0002");
        w.memory.overwrite(&damaged, garbage).await;
        p.put_all(2, 3).await.expect("the other documents can be written");
        assert_eq!(p.log.damaged(), std::slice::from_ref(&damaged), "{garbage}");
        let report = p.domain.admin().janitor_pass().await.expect("passes");
        assert!(report.locked.is_empty(), "{report:?}");
        assert!(report.damaged.iter().any(|(key, _)| *key == damaged), "{report:?}");
        assert!(w.memory.is_in_state(tid, State::Committed).await, "the record stays open");
    }
    let w = SharedStore::of(3).await;
    w.left_by_the_dead(3, Dies::AfterCommit, false).await;
    let p = w.process(Dies::Never).await;
    let key = p.items.key("d0002");
    let (_, source) = w.memory.stored(&key).await.expect("a document");
    w.memory.overwrite(&key, &source.replace("\"n\":1", "\"transaction_version\":7,\"n\":1")).await;
    let error = p.put_all(3, 3).await.expect_err("one document is damaged");
    assert_eq!((error.kind(), error.document()), (ErrorKind::Damaged, Some(&key)), "{error}");
}
