//! Read-only transactions on documents that other transactions write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{join, join_all};
use tokio::time::{Instant, sleep};
use txn_core::store::{Outcome, Write};
use txn_core::{Error, ErrorKind, LockMode, Options, ReadMode, Receipt, Result};
use txn_sim::{Fate, Scripted};

use super::{Bank, Refused};
use crate::support::script::{is_commit, refuse_and_go_down, writes};

/// Reads accounts in a read-only transaction.
async fn look(bank: &Bank, ids: &[usize]) -> Result<(i64, Receipt)> {
    let options = Options::default().with_read_only(true);
    let committed = bank.domain.run(&options, async |tx| {
        let found = tx.get_many(&bank.accounts, ids.iter().map(usize::to_string)).await?;
        Ok(found.into_iter().flatten().map(|account| account.balance).sum())
    });
    committed.await.map(|committed| (committed.value, committed.receipt))
}

/// Moves money between two accounts without a pause, until `stop` is set.
async fn move_without_rest(bank: &Bank, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        bank.transfer(0, 1, 1).await.expect("commits");
        bank.transfer(1, 0, 1).await.expect("commits");
    }
}

/// Reads two accounts that a client writes without a pause.
///
/// The reader runs in the same process or in another. Returns the longest time and the most
/// attempts of a read.
async fn beside_a_busy_writer(by_another: bool) -> (Duration, u32) {
    let bank = Bank::seeded(2, 1).await;
    let another = match by_another {
        true => Some(Bank::seeded_beside(bank.store.clone(), 2).await),
        false => None,
    };
    let reader = another.as_ref().unwrap_or(&bank);
    let stop = AtomicBool::new(false);
    let looks = async {
        let (mut longest, mut tries) = (Duration::ZERO, 0);
        for _ in 0..50 {
            sleep(Duration::from_millis(3)).await;
            let begun = Instant::now();
            let (sum, receipt) = look(reader, &[0, 1]).await.expect("reads");
            assert_eq!(sum, 200, "both reads are of one moment");
            longest = longest.max(begun.elapsed());
            tries = tries.max(receipt.attempts);
        }
        stop.store(true, Ordering::Relaxed);
        (longest, tries)
    };
    let (found, ()) = join(looks, move_without_rest(&bank, &stop)).await;
    found
}

#[tokio::test(start_paused = true)]
async fn reader_joins_the_groups_of_a_busy_writer() {
    let (longest, tries) = beside_a_busy_writer(false).await;
    assert!(longest < Duration::from_millis(40) && tries <= 2, "{longest:?}, {tries} attempts");
}

#[tokio::test(start_paused = true)]
async fn reader_is_not_starved_by_another_process() {
    let (longest, tries) = beside_a_busy_writer(true).await;
    assert!(longest < Duration::from_millis(600) && tries <= 5, "{longest:?}, {tries} attempts");
}

#[tokio::test(start_paused = true)]
async fn readers_add_no_writes_to_a_group() {
    let bank = Bank::open(4).await;
    let mut written = Vec::new();
    for readers in [0_usize, 64] {
        let before = bank.store.counts();
        let writes = join_all((0..64).map(|n| bank.transfer(n % 4, (n + 1) % 4, 1)));
        let looks = join_all((0..readers).map(|n| {
            let bank = &bank;
            async move {
                // Some readers arrive while a group runs.
                sleep(Duration::from_millis(n as u64 % 8)).await;
                look(bank, &[0, 1, 2, 3]).await
            }
        }));
        let (writes, looks) = join(writes, looks).await;
        assert!(writes.iter().all(std::result::Result::is_ok), "{writes:?}");
        for look in looks {
            let (sum, receipt) = look.expect("reads");
            assert_eq!((sum, receipt.tid, receipt.commit_version), (400, None, None));
            assert!(receipt.attempts <= 3, "{receipt:?}");
        }
        bank.settle().await;
        written.push(bank.store.counts().since(before).documents_written);
    }
    assert!(written[1] <= written[0] + 12, "{written:?}");
    assert_eq!(bank.balances(4).await, [100; 4]);
}

#[tokio::test(start_paused = true)]
async fn many_readers_delay_no_writer() {
    let bank = Bank::open(4).await;
    let stop = AtomicBool::new(false);
    let looks = join_all((0..32).map(|n| {
        let (bank, stop) = (&bank, &stop);
        async move {
            while !stop.load(Ordering::Relaxed) {
                look(bank, &[n % 4, (n + 1) % 4]).await.expect("reads");
            }
        }
    }));
    let writes = async {
        let begun = Instant::now();
        for n in 0..50 {
            bank.transfer(n % 4, (n + 1) % 4, 1).await.expect("commits");
        }
        stop.store(true, Ordering::Relaxed);
        begun.elapsed()
    };
    let (took, _) = join(writes, looks).await;
    assert!(took < Duration::from_secs(2), "{took:?} for 50 transfers");
}

#[tokio::test(start_paused = true)]
async fn read_only_transaction_never_sees_unknown() {
    cov_mark::check!(reader_starts_again_where_others_are_in_doubt);
    let store = Arc::new(Scripted::new(Bank::slow_store()));
    let bank = Bank::on(store.clone(), 2).await;
    let writes = join_all((0..8).map(|_| async {
        loop {
            if let Err(refused) = bank.transfer(0, 1, 0).await {
                break refused;
            }
        }
    }));
    let looks = join_all((0..8).map(|_| async {
        loop {
            if let Err(error) = look(&bank, &[0, 1]).await {
                break error.kind();
            }
        }
    }));
    let goes = async {
        sleep(Duration::from_millis(100)).await;
        refuse_and_go_down(&store, Outcome::Unknown("cut".to_owned()), is_commit);
    };
    let ((writes, looks), ()) = join(join(writes, looks), goes).await;
    let is_unknown = |refused: &Refused| matches!(refused, Refused::Failed(error) if error.kind() == ErrorKind::Unknown);
    assert!(writes.iter().any(is_unknown), "a commit is in doubt: {writes:?}");
    assert!(!looks.contains(&ErrorKind::Unknown), "{looks:?}");
}

/// An index is blocked between a commit and its apply. Applied documents can still be read.
#[tokio::test(start_paused = true)]
async fn reader_does_not_wait_for_a_blocked_index() {
    let store = Arc::new(Scripted::new(Bank::slow_store()));
    let bank = Bank::on(store.clone(), 3).await;
    bank.settle().await;
    let is_blocked = |write: &Write| &*write.key.id == "1" && writes(write, "\"balance\":110");
    store.play(move |write| match is_blocked(write) {
        true => Fate::RefuseWith(Outcome::Rejected("blocked".to_owned())),
        false => Fate::Pass,
    });
    bank.transfer(0, 1, 10).await.expect("commits");
    // By now the first document is applied, and the second is refused.
    sleep(Duration::from_millis(50)).await;
    let begun = Instant::now();
    let (sum, _) = look(&bank, &[0, 2]).await.expect("reads");
    assert_eq!(sum, 190);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    store.play(|_| Fate::Pass);
    assert_eq!(bank.balances(3).await, [90, 110, 100]);
}

#[tokio::test(start_paused = true)]
async fn reader_gets_past_repeated_read_locks() {
    let bank = Bank::open(2).await;
    let others = Bank::beside(bank.store.clone()).await;
    let stop = AtomicBool::new(false);
    let locks = Options::default().with_read_mode(ReadMode::Lock).with_lock_mode(LockMode::AtRead);
    let lockers = join_all((0..8).map(|_| async {
        while !stop.load(Ordering::Relaxed) {
            let locked = others.domain.run::<_, Error, _>(&locks, async |tx| {
                tx.get(&others.accounts, "0").await?;
                sleep(Duration::from_secs(2)).await;
                Ok(())
            });
            // An older transaction wounds this one.
            drop(locked.await);
        }
    }));
    let looks = async {
        sleep(Duration::from_millis(50)).await;
        let looked = look(&bank, &[0, 1]).await;
        stop.store(true, Ordering::Relaxed);
        looked
    };
    let (looked, _) = join(looks, lockers).await;
    let (sum, receipt) = looked.expect("reads");
    assert_eq!(sum, 200);
    assert!(receipt.attempts <= 8, "{receipt:?}");
}
