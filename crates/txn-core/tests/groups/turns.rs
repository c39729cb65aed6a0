//! Several processes that want the same documents.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use txn_core::store::{MemoryStore, Outcome};
use txn_core::{Error, Options};
use txn_sim::{CountingStore, FaultPlan, FaultStore};

use super::refusing::{Refusing, Unhelpful};
use super::{Account, Bank};

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_document_holds_none_behind_it() {
    cov_mark::check!(locks_are_given_back_in_order);
    let ours = Bank::open(3).await;
    let theirs = Bank::beside(ours.store.clone()).await;
    // Each has met the other at an account.
    ours.transfer(1, 2, 1).await.expect("commits");
    theirs.add(1, 1).await.expect("commits");
    ours.transfer(1, 2, 1).await.expect("commits");
    let options = Options::default().with_pessimistic(true);
    let one_by_one = theirs.domain.run(&options, async |tx| {
        for id in ["1", "2"] {
            let before = tx.get(&theirs.accounts, id).await?.unwrap_or_default();
            sleep(Duration::from_millis(20)).await;
            tx.put(&theirs.accounts, id, &Account { balance: before.balance + 1 })?;
        }
        Ok::<_, Error>(())
    });
    let all_at_once = async {
        sleep(Duration::from_millis(8)).await;
        let add = ours.domain.transact(async |tx| {
            for id in ["0", "1", "2"] {
                let before = tx.get(&ours.accounts, id).await?.unwrap_or_default();
                tx.put(&ours.accounts, id, &Account { balance: before.balance + 1 })?;
            }
            Ok::<_, Error>(())
        });
        add.await
    };
    let (one_by_one, all_at_once) = tokio::join!(one_by_one, all_at_once);
    let attempts = one_by_one.expect("commits").receipt.attempts;
    assert_eq!(attempts, 1, "neither waits for the other in a circle");
    all_at_once.expect("commits");
    assert_eq!(ours.balances(3).await, [101, 101, 104]);
}

/// Moves money from one of ten accounts to two others, again and again, for so long. Returns how often, and the most attempts that
/// one transfer took.
async fn move_money(bank: &Bank, worker: usize, length: Duration) -> (u32, u32) {
    let ends = Instant::now() + length;
    let (mut moved, mut most) = (0, 0);
    while Instant::now() < ends {
        let n = worker * 7 + moved as usize * (worker % 4 + 1);
        let ids = [n % 10, (n + 1 + worker % 4) % 10, (n + 6) % 10].map(|id| id.to_string());
        let options = Options::default();
        let committed = bank.domain.run(&options, async |tx| {
            for (id, amount) in ids.iter().zip([-2, 1, 1]) {
                let before = tx.get(&bank.accounts, id.as_str()).await?.unwrap_or_default();
                let balance = before.balance + amount;
                tx.put(&bank.accounts, id.as_str(), &Account { balance })?;
            }
            Ok::<_, Error>(())
        });
        most = most.max(committed.await.expect("commits").receipt.attempts);
        moved += 1;
    }
    (moved, most)
}

#[tokio::test(start_paused = true)]
async fn processes_take_turns_at_hot_documents() {
    cov_mark::check!(overtaken_group_locks_first);
    cov_mark::check!(others_go_first);
    cov_mark::check!(contested_documents_are_taken_over);
    let first = Bank::open(10).await;
    let mut banks = vec![first];
    while banks.len() < 4 {
        banks.push(Bank::beside(banks[0].store.clone()).await);
    }
    let before = banks[0].store.counts();
    let length = Duration::from_secs(6);
    let moved = join_all(banks.iter().map(|bank| async move {
        let each = join_all((0..8).map(|worker| move_money(bank, worker, length))).await;
        let most = each.iter().map(|(_, most)| *most).max().unwrap_or_default();
        (each.iter().map(|(moved, _)| *moved).sum::<u32>(), most)
    }))
    .await;
    let counts = banks[0].store.counts().since(before);
    let (least, most) = (moved.iter().min().expect("four"), moved.iter().max().expect("four"));
    let all: u32 = moved.iter().map(|(moved, _)| moved).sum();
    assert!(most.0 <= 2 * least.0, "each has its share: {moved:?}");
    assert!(moved.iter().all(|(_, tries)| *tries <= 5), "{moved:?}");
    // A transfer of three documents by itself writes eight.
    let written = counts.documents_written;
    assert!(written <= u64::from(all) * 5 / 2, "{written} writes for {all} transfers");
    assert_eq!(banks[0].balances(10).await.iter().sum::<i64>(), 1_000);
}

/// Both have met the other at account `0` and `1`, and ours wrote these together a moment ago.
async fn two_that_contest() -> (Bank, Bank) {
    let ours = Bank::open(4).await;
    let theirs = Bank::beside(ours.store.clone()).await;
    contest(&ours, &theirs).await;
    (ours, theirs)
}

async fn contest(ours: &Bank, theirs: &Bank) {
    for _ in 0..4 {
        theirs.transfer(0, 1, 1).await.expect("commits");
        ours.transfer(1, 0, 1).await.expect("commits");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_answered_for_is_not_taken_along() {
    cov_mark::check!(left_behind);
    let theirs = Bank::open(4).await;
    let store = Unhelpful::new(theirs.store.clone(), "0");
    let ours = Bank::beside(Arc::new(CountingStore::new(store.clone()))).await;
    contest(&ours, &theirs).await;
    store.armed.store(true, Ordering::Relaxed);
    let begun = Instant::now();
    assert_eq!(ours.transfer(1, 2, 1).await.expect("commits"), 1);
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(100), "nobody waits for what it does not use: {took:?}");
    assert_eq!(theirs.balances(4).await, [100, 99, 101, 100]);
}

#[tokio::test(start_paused = true)]
async fn what_others_were_faster_with_is_looked_at_again_before_it_is_taken_along() {
    let theirs = Bank::open(4).await;
    let store = Unhelpful::new(theirs.store.clone(), "0");
    let ours = Bank::beside(Arc::new(CountingStore::new(store.clone()))).await;
    contest(&ours, &theirs).await;
    sleep(Duration::from_millis(100)).await;
    store.conflicts.store(1, Ordering::Relaxed);
    let before = ours.store.counts();
    assert_eq!(ours.transfer(1, 2, 1).await.expect("commits"), 1);
    assert_eq!(store.conflicts.load(Ordering::Relaxed), 0, "it was taken along");
    assert!(ours.domain.shutdown(Duration::from_secs(60)).await);
    let written = ours.store.counts().since(before).documents_written;
    assert_eq!(written, 9, "three locks and one in vain, the record twice, three documents");
    assert_eq!(theirs.balances(4).await, [100, 99, 101, 100]);
    assert!(theirs.domain.inspect().await.expect("looks").is_clean());
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_along_is_not_waited_for_while_nothing_moves_there() {
    cov_mark::check!(left_behind);
    let (ours, theirs) = two_that_contest().await;
    let options = Options::default().with_pessimistic(true);
    let slow = theirs.domain.run(&options, async |tx| {
        let before = tx.get(&theirs.accounts, "0").await?.unwrap_or_default();
        sleep(Duration::from_millis(900)).await;
        tx.put(&theirs.accounts, "0", &Account { balance: before.balance + 1 })?;
        Ok::<_, Error>(Instant::now())
    });
    let others = async {
        sleep(Duration::from_millis(10)).await;
        ours.transfer(1, 2, 1).await.expect("commits");
        Instant::now()
    };
    let (slow, others) = tokio::join!(slow, others);
    let slow = slow.expect("commits");
    assert!(others < slow.value, "who does not use it does not wait for it");
    assert_eq!(ours.balances(4).await, [101, 99, 101, 100]);
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_is_not_taken_along() {
    cov_mark::check!(left_behind);
    let (ours, theirs) = two_that_contest().await;
    let gone = theirs.domain.transact::<_, Error, _>(async |tx| tx.delete(&theirs.accounts, "0"));
    gone.await.expect("commits");
    sleep(Duration::from_millis(100)).await;
    let before = ours.store.counts();
    ours.transfer(1, 2, 1).await.expect("commits");
    assert!(ours.domain.shutdown(Duration::from_secs(60)).await);
    let written = ours.store.counts().since(before).documents_written;
    assert_eq!(written, 6, "two locks, the record twice, two documents");
    assert_eq!(theirs.balances(4).await, [0, 99, 101, 100]);
}

#[tokio::test(start_paused = true)]
async fn who_stands_in_a_circle_is_found_though_others_come_and_go() {
    let mut stood = Vec::new();
    for _ in 0..5 {
        stood.push(circle_beside_others().await);
    }
    // Whom it meets is chance: once in a while others are in its way all the time that it is courteous.
    stood.sort_unstable();
    assert!(stood[2] < Duration::from_millis(500), "{stood:?}");
}

/// How long two stand in a circle, of which one also wants what others write all the time.
async fn circle_beside_others() -> Duration {
    let banks = [Bank::open(4).await];
    let [ours] = &banks;
    let (theirs, others) =
        (Bank::beside(ours.store.clone()).await, Bank::beside(ours.store.clone()).await);
    let options = Options::default().with_pessimistic(true);
    let begun = Instant::now();
    let (has, asked) = (Notify::new(), AtomicBool::new(false));
    let older = async {
        let run = ours.domain.run(&options, async |tx| {
            let one = tx.get(&ours.accounts, "0").await?.unwrap_or_default();
            has.notified().await;
            // One of them stays, and at the other somebody new is met each time.
            tx.get_many(&ours.accounts, ["1", "2"]).await?;
            asked.store(true, Ordering::Relaxed);
            tx.put(&ours.accounts, "0", &Account { balance: one.balance + 1 })
        });
        let ended = run.await;
        asked.store(true, Ordering::Relaxed);
        ended
    };
    let younger = async {
        sleep(Duration::from_millis(5)).await;
        let run = theirs.domain.run(&options, async |tx| {
            let one = tx.get(&theirs.accounts, "1").await?.unwrap_or_default();
            has.notify_one();
            tx.get(&theirs.accounts, "0").await?;
            tx.put(&theirs.accounts, "1", &Account { balance: one.balance + 1 })
        });
        run.await.expect("commits")
    };
    let come_and_go = async {
        let back_and_forth = async || {
            while !asked.load(Ordering::Relaxed) {
                others.transfer(2, 3, 1).await.expect("commits");
                others.transfer(3, 2, 1).await.expect("commits");
            }
        };
        join_all((0..8).map(|_| back_and_forth())).await;
        begun.elapsed()
    };
    let (older, _, stood) = tokio::join!(older, younger, come_and_go);
    older.expect("commits");
    stood
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_along_and_lost_sends_nobody_away() {
    cov_mark::check!(contested_documents_are_taken_over);
    cov_mark::check!(left_behind);
    let plan = FaultPlan::none(1).with_delay(1.0, Duration::from_millis(2));
    let store = Arc::new(FaultStore::new(Arc::new(MemoryStore::new()), plan));
    let refusing = Refusing::new(store.clone(), "2", Outcome::Conflict);
    let ours = Bank::beside(Arc::new(CountingStore::new(refusing.clone()))).await;
    let theirs = Bank::beside(Arc::new(CountingStore::new(store))).await;
    let add_to = async |bank: &Bank, ids: std::ops::Range<usize>| {
        let options = Options::default();
        let committed = bank.domain.run(&options, async |tx| {
            for id in ids.clone() {
                let id = id.to_string();
                let before = tx.get(&bank.accounts, id.as_str()).await?.unwrap_or_default();
                tx.put(&bank.accounts, id, &Account { balance: before.balance + 1 })?;
            }
            Ok::<_, Error>(())
        });
        committed.await.expect("commits").receipt.attempts
    };
    for _ in 0..2 {
        add_to(&ours, 0..3).await;
        add_to(&theirs, 0..3).await;
    }
    refusing.armed.store(true, Ordering::Relaxed);
    let next = async {
        sleep(Duration::from_millis(1)).await;
        (add_to(&ours, 0..2).await, Instant::now())
    };
    let options = Options::default().with_pessimistic(true);
    let slow = async {
        refusing.refuses.notified().await;
        let slow = theirs.domain.run(&options, async |tx| {
            let before = tx.get(&theirs.accounts, "2").await?.unwrap_or_default();
            refusing.go_on.notify_one();
            sleep(Duration::from_millis(500)).await;
            tx.put(&theirs.accounts, "2", &Account { balance: before.balance + 1 })?;
            Ok::<_, Error>(Instant::now())
        });
        slow.await.expect("commits")
    };
    let (_, (attempts, ended), slow) = tokio::join!(add_to(&ours, 0..3), next, slow);
    assert_eq!(attempts, 1, "nobody starts again for what it does not use");
    assert!(ended < slow.value, "and nobody waits for it");
    assert_eq!(slow.receipt.attempts, 1, "nor wounds for it");
    assert!(ours.domain.shutdown(Duration::from_secs(60)).await);
    assert_eq!(theirs.balances(3).await, [6, 6, 6]);
}
