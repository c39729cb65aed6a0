//! Several processes on the same documents.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};
use txn_core::{Error, LockMode, Options};

use super::{Account, Bank};

/// Moves money from one account to two other accounts, repeatedly, for `length`.
///
/// Returns the number of transfers, and the most attempts of one transfer.
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
    assert!(most.0 <= 2 * least.0, "each process has its share: {moved:?}");
    // After eight attempts a transaction would leave the groups.
    assert!(moved.iter().all(|(_, tries)| *tries < 8), "{moved:?}");
    // A transfer of three documents without groups writes eight documents.
    let written = counts.documents_written;
    assert!(written <= u64::from(all) * 5 / 2, "{written} writes for {all} transfers");
    assert_eq!(banks[0].balances(10).await.iter().sum::<i64>(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn deadlock_is_broken_despite_changing_holders() {
    let mut stood = Vec::new();
    for _ in 0..5 {
        stood.push(circle_beside_others().await);
    }
    // The holders that the older transaction finds are random. Sometimes a third process holds the
    // documents during the whole grace period, so the median counts.
    stood.sort_unstable();
    assert!(stood[2] < Duration::from_millis(500), "{stood:?}");
}

/// Returns the length of a deadlock of two transactions.
///
/// The older transaction also wants documents that a third process writes all the time.
async fn circle_beside_others() -> Duration {
    let banks = [Bank::open(4).await];
    let [ours] = &banks;
    let (theirs, others) =
        (Bank::beside(ours.store.clone()).await, Bank::beside(ours.store.clone()).await);
    let options = Options::default().with_lock_mode(LockMode::AtRead);
    let begun = Instant::now();
    // The permit stays for further runs. An attempt that releases its locks for the board runs its
    // closure again.
    let (has, asked) = (Semaphore::new(0), AtomicBool::new(false));
    let older = async {
        let run = ours.domain.run(&options, async |tx| {
            let one = tx.get(&ours.accounts, "0").await?.unwrap_or_default();
            let _ = has.acquire().await;
            // The holder of `1` stays the same. The holder of `2` changes all the time.
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
            has.add_permits(1);
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
