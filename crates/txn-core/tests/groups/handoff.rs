//! Groups that lock what the group before has committed and not applied yet.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;
use tokio::task::yield_now;
use txn_core::Error;
use txn_core::store::{MemoryStore, Outcome, Refusal, RefusalKind};
use txn_sim::{CountingStore, FaultPlan, FaultStore};

use super::refusing::Refusing;
use super::{Account, Bank, Refused};

/// Transfers one after the other between the same two accounts, with what they cost the store.
async fn back_to_back(bank: &Bank, n: usize) -> txn_sim::Counts {
    let before = bank.store.counts();
    for _ in 0..n {
        bank.transfer(0, 1, 1).await.expect("commits");
    }
    bank.settle().await;
    bank.store.counts().since(before)
}

#[tokio::test(start_paused = true)]
async fn what_is_written_again_is_handed_off_the_commit() {
    let bank = Bank::open(2).await;
    bank.transfer(0, 1, 1).await.expect("commits");
    let counts = back_to_back(&bank, 64).await;
    // One write locks a document and carries the commit before; beside it stand the record and its mark, and every few
    // transfers an apply.
    assert!(counts.documents_written <= 64 * 4 + 16, "{counts}");
    assert!(counts.requests() <= 64 * 3 + 16, "{counts}");
    assert_eq!(bank.balances(2).await, [35, 165]);
}

#[tokio::test(start_paused = true)]
async fn whoever_is_back_a_moment_after_its_commit_is_waited_for() {
    let bank = Bank::open(2).await;
    let before = bank.store.counts();
    for _ in 0..64 {
        bank.transfer(0, 1, 1).await.expect("commits");
        // More than those who are ready to run are waited for; time does not move meanwhile.
        for _ in 0..50 {
            yield_now().await;
        }
    }
    assert!(bank.domain.shutdown(Duration::from_secs(5)).await);
    let counts = bank.store.counts().since(before);
    assert!(counts.documents_written <= 64 * 5, "{counts}");
    assert_eq!(bank.balances(2).await, [36, 164]);
}

#[tokio::test(start_paused = true)]
async fn what_is_deleted_and_inserted_again_is_handed_off_the_commit() {
    let bank = Bank::open(2).await;
    let turn = |there: bool| {
        let bank = &bank;
        async move {
            let run = bank.domain.transact::<_, Error, _>(async |tx| {
                let first = tx.get(&bank.accounts, "0").await?.unwrap_or_default();
                tx.put(&bank.accounts, "0", &Account { balance: first.balance + 1 })?;
                match there {
                    true => tx.delete(&bank.accounts, "1").map(drop),
                    false => tx.insert(&bank.accounts, "1", &Account { balance: first.balance }),
                }
            });
            run.await.expect("commits");
        }
    };
    let before = bank.store.counts();
    for n in 0..40 {
        turn(n % 2 == 0).await;
    }
    bank.settle().await;
    let counts = bank.store.counts().since(before);
    assert!(counts.documents_written <= 40 * 4 + 16, "{counts}");
    assert_eq!(bank.balances(2).await, [140, 139]);
}

#[tokio::test(start_paused = true)]
async fn groups_leave_hot_documents_to_each_other() {
    let bank = Bank::open(6).await;
    let before = bank.store.counts();
    let tries = join_all((0..48).map(|client| {
        let bank = &bank;
        async move {
            let mut most = 0;
            for n in 0..25 {
                let (from, to) = ((client + n) % 6, (client + n + 1 + n % 5) % 6);
                let tries = bank.transfer(from, to, 1).await.or_else(|refused| match refused {
                    Refused::Poor => Ok(1),
                    failed => Err(failed),
                });
                most = most.max(tries.expect("commits"));
            }
            most
        }
    }))
    .await;
    assert!(tries.iter().all(|tries| *tries <= 3), "{tries:?}");
    assert!(bank.domain.shutdown(Duration::from_secs(5)).await);
    let written = bank.store.counts().since(before).documents_written;
    let over = bank.sizes.1.load(Ordering::Relaxed);
    assert!(over >= 100, "{over} documents were locked over the commit before");
    assert!(written <= 400, "{written} writes for 1200 transfers of two documents");
    assert_eq!(bank.balances(6).await.iter().sum::<i64>(), 600);
}

/// The lock is not written over the commit then: what stands there is looked at again, and that is what another process
/// committed meanwhile.
#[tokio::test(start_paused = true)]
async fn a_refused_lock_over_a_commit_sees_what_others_did_meanwhile() {
    let plan = FaultPlan::none(1).with_delay(1.0, Duration::from_millis(2));
    let store = Arc::new(FaultStore::new(Arc::new(MemoryStore::new()), plan));
    let reason = "refused by the test".to_owned();
    let refused = Outcome::Invalid(Refusal { kind: RefusalKind::Document, reason });
    let refusing = Refusing::new(store.clone(), "1", refused);
    let bank = Bank::beside(Arc::new(CountingStore::new(refusing.clone()))).await;
    let others = Bank::beside(Arc::new(CountingStore::new(store))).await;
    for id in 0..2 {
        bank.add(id, 100).await.expect("commits");
    }
    bank.transfer(0, 1, 1).await.expect("commits");
    refusing.armed.store(true, Ordering::Relaxed);
    let ours = async {
        for _ in 0..3 {
            bank.transfer(0, 1, 1).await.expect("commits");
        }
    };
    let theirs = async {
        refusing.refuses.notified().await;
        others.add(1, 50).await.expect("commits");
        refusing.go_on.notify_one();
    };
    let both = async { tokio::join!(ours, theirs) };
    tokio::time::timeout(Duration::from_secs(60), Box::pin(both))
        .await
        .expect("a lock is written over a commit");
    let settled = bank.domain.shutdown(Duration::from_secs(60));
    assert!(settled.await);
    assert_eq!(others.balances(2).await, [96, 154]);
}
