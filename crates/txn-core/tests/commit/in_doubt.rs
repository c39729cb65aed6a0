//! Writes that the store applied and then refused.
//!
//! A server answers for its last try, although an earlier try may have been applied. The engine
//! must never report such a write as not done.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use txn_core::store::{Outcome, Refusal, RefusalKind, Store, Write, WriteOp};
use txn_core::{AttemptId, Error, ErrorKind, Options, TransactionOutcome};
use txn_sim::Fate;

use crate::support::script::{is_commit, is_lock, refuse_and_go_down, writes};
use crate::support::{Item, Plain, Shop, record_key, recorded};

/// Answers of a server that applied a write and then failed.
fn refusals() -> [Outcome; 4] {
    let reason = "security_exception".to_owned();
    [
        Outcome::RejectedInDoubt("es_rejected_execution_exception".to_owned()),
        Outcome::RejectedInDoubt("cluster_block_exception".to_owned()),
        Outcome::MissingCollection,
        Outcome::Invalid(Refusal { kind: RefusalKind::Denied, reason }),
    ]
}

async fn set_both(shop: &Shop, n: i64) -> Result<(), Error> {
    shop.set(&shop.domain, &["a", "b"], n).await
}

/// The store returns while the transaction releases its locks, or much later.
const BACK: [Duration; 3] =
    [Duration::from_millis(30_050), Duration::from_millis(30_500), Duration::from_secs(90)];

#[tokio::test(start_paused = true)]
async fn refused_but_applied_commit_is_unknown() {
    for refusal in refusals() {
        for back in BACK {
            let shop = Shop::open(&["a", "b"]).await;
            refuse_and_go_down(&shop.store, refusal.clone(), is_commit);
            let (result, ()) = tokio::join!(set_both(&shop, 2), async {
                tokio::time::sleep(back).await;
                shop.store.set_down(false);
            });
            let error = result.expect_err("the commit is in doubt");
            assert_eq!(error.kind(), ErrorKind::Unknown, "{refusal:?} {back:?}: {error}");
            let tid = error.tid().expect("a record");
            let outcome = shop.other.outcome(tid).await.expect("known");
            assert!(matches!(outcome, TransactionOutcome::Committed { .. }), "{outcome:?}");
            let report = shop.other.admin().janitor_pass().await.expect("passes");
            assert!(report.is_clean(), "{report:?}");
            assert_eq!((shop.value("a").await, shop.value("b").await), (Some(2), Some(2)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn refused_but_applied_commit_is_found_in_time() {
    for refusal in &refusals()[..3] {
        let shop = Shop::open(&["a", "b"]).await;
        refuse_and_go_down(&shop.store, refusal.clone(), is_commit);
        let (result, ()) = tokio::join!(set_both(&shop, 2), async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            shop.store.set_down(false);
        });
        result.expect("committed");
        shop.drained().await;
        assert_eq!((shop.value("a").await, shop.value("b").await), (Some(2), Some(2)));
    }
}

#[tokio::test(start_paused = true)]
async fn refused_but_applied_single_write_is_unknown() {
    for refusal in refusals() {
        for back in BACK {
            let shop = Shop::open(&["a"]).await;
            refuse_and_go_down(&shop.store, refusal.clone(), |write| writes(write, "\"n\":2"));
            let (result, ()) = tokio::join!(shop.set(&shop.domain, &["a"], 2), async {
                tokio::time::sleep(back).await;
                shop.store.set_down(false);
            });
            let error = result.expect_err("the write is in doubt");
            assert_eq!(error.kind(), ErrorKind::Unknown, "{refusal:?} {back:?}: {error}");
            assert_eq!(shop.value("a").await, Some(2));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn refused_but_applied_lock_is_released() {
    for refusal in refusals() {
        for back in BACK {
            let shop = Shop::open(&["a", "b"]).await;
            refuse_and_go_down(&shop.store, refusal.clone(), is_lock);
            let (result, ()) = tokio::join!(set_both(&shop, 2), async {
                tokio::time::sleep(back).await;
                shop.store.set_down(false);
            });
            let error = result.expect_err("the store was down until the deadline");
            assert_ne!(error.kind(), ErrorKind::Unknown, "no commit was sent: {error}");
            shop.other.admin().janitor_pass().await.expect("passes");
            shop.drained().await;
            assert_eq!((shop.value("a").await, shop.value("b").await), (Some(1), Some(1)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lock_with_a_lost_answer_is_found_again() {
    cov_mark::check!(lost_lock_found_again);
    let shop = Shop::open(&["a", "b"]).await;
    let lost = AtomicUsize::new(0);
    shop.store.play(move |write| {
        match is_lock(write) && lost.fetch_add(1, Ordering::SeqCst) == 0 {
            true => Fate::AnswerWith(Outcome::Unknown("lost".to_owned())),
            false => Fate::Pass,
        }
    });
    set_both(&shop, 2).await.expect("commits");
    shop.drained().await;
    assert_eq!((shop.value("a").await, shop.value("b").await), (Some(2), Some(2)));
}

/// The first try of a lock arrives after the attempt. The store refuses the later tries for
/// certain.
#[tokio::test(start_paused = true)]
async fn later_refusal_does_not_settle_a_lock_in_doubt() {
    let shop = Shop::open(&["a", "b"]).await;
    let late: Arc<Mutex<Option<Write>>> = Arc::default();
    let (tries, kept) = (AtomicUsize::new(0), late.clone());
    shop.store.play(move |write| match is_lock(write) && &*write.key.id == "a" {
        true if tries.fetch_add(1, Ordering::SeqCst) == 0 => {
            *kept.lock() = Some(write.clone());
            Fate::RefuseWith(Outcome::RejectedInDoubt("a full queue".to_owned()))
        }
        true => Fate::RefuseWith(Outcome::Rejected("not sent".to_owned())),
        false => Fate::Pass,
    });
    let error = set_both(&shop, 2).await.expect_err("no lock is acknowledged");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let write = late.lock().take().expect("a lock was sent");
    // The record of that attempt is `aborted`, so another process need not wait for the lock.
    let WriteOp::Replace(source, _) = &write.op else { panic!("no lock: {write:?}") };
    let tid: AttemptId = source.split('"').nth(3).expect("a lock").parse().expect("a tid");
    assert!(shop.memory.text(&record_key(tid)).await.contains("aborted"));
    shop.memory.write_many(&[write]).await;
    shop.set(&shop.other, &["a", "b"], 3).await.expect("commits");
    shop.drained().await;
}

#[tokio::test(start_paused = true)]
async fn single_write_with_a_known_tid_has_an_outcome() {
    let shop = Shop::open(&["a"]).await;
    let asked = Mutex::new(None);
    let items = &shop.items;
    let options = recorded();
    let committed = shop.domain.run::<_, Error, _>(&options, async |tx| {
        *asked.lock() = Some(tx.tid()?);
        tx.get(items, "a").await?;
        tx.put(items, "a", &Item { n: 2 })
    });
    let receipt = committed.await.expect("commits").receipt;
    let tid = asked.lock().expect("the closure ran");
    assert_eq!(receipt.tid, Some(tid));
    let commit_version = receipt.commit_version.expect("a commit version");
    let outcome = shop.other.outcome(tid).await.expect("known");
    assert_eq!(outcome, TransactionOutcome::Committed { commit_version });
    // Without the option, the commit is one write without a record, and has no outcome.
    let options = Options::default();
    let quiet = shop.domain.run::<_, Error, _>(&options, async |tx| {
        tx.get(items, "a").await?;
        tx.put(items, "a", &Item { n: 3 })
    });
    assert_eq!(quiet.await.expect("commits").receipt.tid, None);
}

/// A lagging node answers `MissingCollection` for a try that was applied. The store refuses the
/// later tries for certain.
#[tokio::test(start_paused = true)]
async fn later_refusal_does_not_settle_a_commit_in_doubt() {
    let shop = Shop::open(&["a", "b"]).await;
    let tries = AtomicUsize::new(0);
    shop.store.play(move |write| match is_commit(write) {
        true if tries.fetch_add(1, Ordering::SeqCst) == 0 => {
            Fate::AnswerWith(Outcome::MissingCollection)
        }
        true => Fate::RefuseWith(Outcome::Rejected("not sent".to_owned())),
        false => Fate::Pass,
    });
    let error = set_both(&shop, 2).await.expect_err("the commit is never acknowledged");
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
}

#[tokio::test(start_paused = true)]
async fn shutdown_reports_a_commit_in_doubt_as_unapplied() {
    let shop = Shop::open(&["a", "b"]).await;
    refuse_and_go_down(&shop.store, Outcome::Unknown("lost".to_owned()), is_commit);
    let error = set_both(&shop, 2).await.expect_err("the commit is in doubt");
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    shop.store.set_down(false);
    assert!(!shop.domain.shutdown(Duration::from_secs(5)).await);
    assert_eq!(shop.other.admin().inspect().await.expect("inspects").locked.len(), 2);
}
