//! Hand-offs between groups of one process.
//!
//! A group locks documents that the previous group has committed and not yet applied.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;
use tokio::task::yield_now;
use txn_core::Error;
use txn_core::store::{Outcome, Refusal, RefusalKind};
use txn_sim::CountingStore;

use super::refusing::refuse_handoff;
use super::{Account, Bank, Refused};

/// Transfers between two accounts `n` times in sequence, and returns the cost.
async fn back_to_back(bank: &Bank, n: usize) -> txn_sim::Counts {
    let before = bank.store.counts();
    for _ in 0..n {
        bank.transfer(0, 1, 1).await.expect("commits");
    }
    bank.settle().await;
    bank.store.counts().since(before)
}

#[tokio::test(start_paused = true)]
async fn repeated_writes_of_a_document_use_the_handoff() {
    let bank = Bank::open(2).await;
    bank.transfer(0, 1, 1).await.expect("commits");
    let counts = back_to_back(&bank, 64).await;
    // A hand-off locks a document and carries the previous commit in a single write. Each transfer
    // also writes its record twice, and a few transfers need an apply.
    assert!(counts.documents_written <= 64 * 4 + 16, "{counts}");
    assert!(counts.requests() <= 64 * 3 + 16, "{counts}");
    assert_eq!(bank.balances(2).await, [35, 165]);
}

#[tokio::test(start_paused = true)]
async fn handoff_waits_for_a_caller_that_returns_soon() {
    let bank = Bank::open(2).await;
    let before = bank.store.counts();
    for _ in 0..64 {
        bank.transfer(0, 1, 1).await.expect("commits");
        // The hand-off waits longer than for the tasks that are ready to run. Virtual time stands
        // still.
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
async fn deletes_and_inserts_use_the_handoff() {
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
async fn groups_hand_off_hot_documents() {
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
    assert!(over >= 100, "{over} documents were handed off");
    assert!(written <= 400, "{written} writes for 1200 transfers of two documents");
    assert_eq!(bank.balances(6).await.iter().sum::<i64>(), 600);
}

/// After the refusal the group reads the document again.
///
/// The read must show the commit of the other process.
#[tokio::test(start_paused = true)]
async fn refused_handoff_sees_commits_of_other_processes() {
    let store = Bank::slow_store();
    let reason = "refused by the test".to_owned();
    let refused = Outcome::Invalid(Refusal { kind: RefusalKind::Document, reason });
    let (refusing, point) = refuse_handoff(&store, "1", refused);
    let bank = Bank::beside(Arc::new(CountingStore::new(refusing))).await;
    let others = Bank::beside(Arc::new(CountingStore::new(store))).await;
    for id in 0..2 {
        bank.add(id, 100).await.expect("commits");
    }
    bank.transfer(0, 1, 1).await.expect("commits");
    point.set();
    let ours = async {
        for _ in 0..3 {
            bank.transfer(0, 1, 1).await.expect("commits");
        }
    };
    let theirs = async {
        point.reached().await;
        others.add(1, 50).await.expect("commits");
        point.release();
    };
    let both = async { tokio::join!(ours, theirs) };
    tokio::time::timeout(Duration::from_secs(60), Box::pin(both))
        .await
        .expect("a lock is handed off");
    let settled = bank.domain.shutdown(Duration::from_secs(60));
    assert!(settled.await);
    assert_eq!(others.balances(2).await, [96, 154]);
}
