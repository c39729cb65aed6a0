//! Many clients at once: shared writes, and failures of single members.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::join_all;
use tokio::time::{Instant, sleep};
use txn_core::store::MemoryStore;
use txn_core::{Error, ErrorKind, LockMode, Options, Result};
use txn_sim::{CountingStore, FaultPlan, FaultStore};

use super::{Account, Bank, Refused};

#[tokio::test(start_paused = true)]
async fn many_increments_of_one_document_are_a_few_writes() {
    let bank = Bank::open(1).await;
    let before = bank.store.counts();
    let tries = join_all((0..64).map(|_| bank.add(0, 1))).await;
    assert!(tries.iter().all(|tries| *tries.as_ref().expect("commits") <= 2), "{tries:?}");
    assert_eq!(bank.balances(1).await, [164]);
    let written = bank.store.counts().since(before).documents_written;
    assert!(written <= 8, "{written} writes for 64 increments");
}

#[tokio::test(start_paused = true)]
async fn transfers_on_hot_accounts_share_locks_and_records() {
    let bank = Bank::open(4).await;
    let before = bank.store.counts();
    let transfers = (0..96).map(|n| bank.transfer(n % 4, (n + 1 + n / 4 % 3) % 4, 1));
    let tries = join_all(transfers).await;
    assert!(tries.iter().all(|tries| *tries.as_ref().expect("commits") <= 2), "{tries:?}");
    assert_eq!(bank.balances(4).await.iter().sum::<i64>(), 400);
    let written = bank.store.counts().since(before).documents_written;
    assert!(written <= 96, "{written} writes for 96 transfers of two documents");
    assert!(bank.sizes.0.lock().iter().sum::<usize>() >= 90);
    assert!(bank.domain.shutdown(Duration::from_secs(5)).await);
}

#[tokio::test(start_paused = true)]
async fn failing_member_fails_no_other_member() {
    let bank = Bank::open(3).await;
    let existing = || async {
        let insert = bank.domain.transact(async |tx| {
            let seen = tx.get(&bank.accounts, "1").await?.unwrap_or_default();
            tx.put(&bank.accounts, "1", &seen)?;
            tx.insert(&bank.accounts, "0", &Account::default())
        });
        insert.await.expect_err("exists").kind()
    };
    let poor = || async { matches!(bank.transfer(2, 1, 1_000).await, Err(Refused::Poor)) };
    let (good, existing, poor) = tokio::join!(
        join_all((0..20).map(|n| bank.transfer(n % 2, 1 - n % 2, 1))),
        join_all((0..5).map(|_| existing())),
        join_all((0..5).map(|_| poor())),
    );
    assert!(good.iter().all(Result::is_ok), "{good:?}");
    assert_eq!(existing, [ErrorKind::Exists; 5]);
    assert_eq!(poor, [true; 5]);
    assert_eq!(bank.balances(3).await, [100, 100, 100]);
}

#[tokio::test(start_paused = true)]
async fn slow_closure_delays_no_other_transaction() {
    let bank = Bank::open(2).await;
    let runs = AtomicU32::new(0);
    let slow = bank.domain.transact::<_, Error, _>(async |tx| {
        let before = tx.get(&bank.accounts, "0").await?.unwrap_or_default();
        runs.fetch_add(1, Ordering::Relaxed);
        sleep(Duration::from_millis(700)).await;
        tx.put(&bank.accounts, "0", &Account { balance: before.balance + 1 })?;
        tx.put(&bank.accounts, "1", &before)
    });
    let quick = async {
        let begun = Instant::now();
        for _ in 0..100 {
            bank.add(0, 1).await.expect("commits");
        }
        begun.elapsed()
    };
    let (slow, quick) = tokio::join!(slow, quick);
    slow.expect("commits in the end");
    assert!(quick < Duration::from_secs(5), "{quick:?}");
    assert_eq!(bank.balances(1).await, [201]);
}

#[tokio::test(start_paused = true)]
async fn dropped_member_leaves_or_commits_whole() {
    let bank = Bank::open(3).await;
    let transfers = (0..60_u64).map(|n| {
        let bank = &bank;
        async move {
            let (from, to) = (n as usize % 3, (n as usize + 1) % 3);
            let transfer = bank.transfer(from, to, 1);
            if n % 3 == 0 {
                let _gone = tokio::time::timeout(Duration::from_millis(n % 20), transfer).await;
            } else {
                transfer.await.expect("commits");
            }
        }
    });
    join_all(transfers).await;
    assert!(bank.domain.shutdown(Duration::from_secs(5)).await);
    let reader = Bank::beside(bank.store.clone()).await;
    assert_eq!(reader.balances(3).await.iter().sum::<i64>(), 300);
    assert!(reader.domain.admin().inspect().await.expect("inspects").is_clean());
}

#[tokio::test(start_paused = true)]
async fn stale_cache_retries_only_the_affected_members() {
    let ours = Bank::open(40).await;
    let theirs = Bank::beside(ours.store.clone()).await;
    let pairs =
        |bank| join_all((0..20_usize).map(move |n| Bank::transfer(bank, 2 * n, 2 * n + 1, 1)));
    // Each process caches documents that the other process changes.
    for bank in [&ours, &theirs, &ours, &theirs] {
        let tries = pairs(bank).await;
        assert!(tries.iter().all(|tries| *tries.as_ref().expect("commits") <= 3), "{tries:?}");
    }
    let (ours_tries, theirs_tries) = tokio::join!(pairs(&ours), pairs(&theirs));
    assert!(ours_tries.iter().chain(&theirs_tries).all(Result::is_ok));
    assert_eq!(ours.balances(40).await.iter().sum::<i64>(), 4_000);
    assert_eq!(ours.balances(2).await, [94, 106]);
}

#[tokio::test(start_paused = true)]
async fn older_waiting_transaction_goes_before_groups() {
    let bank = Bank::open(2).await;
    let options = Options::default().with_lock_mode(LockMode::AtRead);
    let by_itself = bank.domain.run(&options, async |tx| {
        let mut sum = 0;
        for id in ["0", "1"] {
            sum += tx.get(&bank.accounts, id).await?.unwrap_or_default().balance;
            sleep(Duration::from_millis(5)).await;
        }
        tx.put(&bank.accounts, "sum", &Account { balance: sum })?;
        Ok::<_, Error>(sum)
    });
    let begun = Instant::now();
    let hot = async {
        let mut running = Vec::new();
        for n in 0..200 {
            running.push(bank.transfer(n % 2, 1 - n % 2, 1));
            if n % 20 == 0 {
                assert!(join_all(running.drain(..)).await.iter().all(std::result::Result::is_ok));
            }
        }
        join_all(running).await;
    };
    let (by_itself, ()) = tokio::join!(by_itself, hot);
    let by_itself = by_itself.expect("commits");
    assert_eq!(by_itself.value, 200);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn documents_that_are_only_read_are_shared() {
    let bank = Bank::open(21).await;
    let use_all = (1..21).map(|n| bank.pay_fee(n));
    let (paid, changed) = tokio::join!(join_all(use_all), bank.add(0, -99));
    paid.into_iter().collect::<Result<()>>().expect("commit");
    changed.expect("commits");
    let balances = bank.balances(21).await;
    assert_eq!(balances[0], 1);
    // Each member paid the fee before or after the change.
    assert!(balances[1..].iter().all(|balance| [0, 99].contains(balance)), "{balances:?}");
}

#[tokio::test(start_paused = true)]
async fn member_linked_to_an_evicted_one_commits_once() {
    cov_mark::check!(members_evicted);
    let ours = Bank::open(21).await;
    let theirs = Bank::beside(ours.store.clone()).await;
    // The process caches the accounts, so the first request of the members is that of the group.
    assert_eq!(join_all((0..21).map(|n| ours.add(n, 0))).await.len(), 21);
    let options = Options::default().with_lock_mode(LockMode::AtRead);
    let older = theirs.domain.run(&options, async |tx| {
        let before = tx.get(&theirs.accounts, "1").await?.unwrap_or_default();
        sleep(Duration::from_millis(100)).await;
        tx.put(&theirs.accounts, "1", &Account { balance: before.balance + 1 })
    });
    let pay = async {
        sleep(Duration::from_millis(20)).await;
        join_all((1..21).map(|n| ours.pay_fee(n))).await.into_iter().collect::<Result<()>>()
    };
    let (older, paid) = tokio::join!(older, pay);
    older.expect("commits");
    paid.expect("commit");
    assert!(ours.sizes.0.lock().iter().any(|size| *size > 2), "{:?}", ours.sizes.0.lock());
    let balances = ours.balances(21).await;
    assert_eq!(balances[..2], [100, 1]);
    assert!(balances[2..].iter().all(|balance| *balance == 0), "{balances:?}");
}

#[tokio::test(start_paused = true)]
async fn only_the_last_writer_gets_the_commit_version() {
    cov_mark::check!(member_was_overwritten_by_a_later_one);
    let bank = Bank::open(2).await;
    let options = Options::default();
    let run = |options: Options| {
        let bank = &bank;
        async move {
            let run = bank.domain.run(&options, async |tx| {
                let one = tx.get(&bank.accounts, "0").await?.unwrap_or_default();
                let two = tx.get(&bank.accounts, "1").await?.unwrap_or_default();
                tx.put(&bank.accounts, "0", &Account { balance: one.balance + 1 })?;
                tx.put(&bank.accounts, "1", &Account { balance: two.balance + 1 })
            });
            run.await.map(|committed| committed.receipt.commit_version).expect("commits")
        }
    };
    let versions = join_all((0..20).map(|_| run(options.clone()))).await;
    let last =
        bank.domain.reader().read(&bank.accounts, "0").await.expect("reads").commit_version();
    assert_eq!(versions.iter().filter(|version| **version == last).count(), 1);
    assert!(versions.iter().filter(|version| version.is_none()).count() >= 10);
    let versions =
        join_all((0..5).map(|_| run(options.clone().with_lock_mode(LockMode::AtCommitUngrouped))))
            .await;
    assert!(versions.iter().all(Option::is_some));
    assert_eq!(bank.balances(2).await, [125, 125]);
}

#[tokio::test(start_paused = true)]
async fn transactions_that_ask_for_versions_share_groups() {
    let bank = Bank::open(21).await;
    let pay = |own: String| {
        let bank = &bank;
        async move {
            let run = bank.domain.transact::<_, Error, _>(async |tx| {
                let version = tx.version(&bank.accounts, own.as_str()).await?;
                tx.put(&bank.accounts, own.as_str(), &Account { balance: 99 })?;
                let shared = tx.get(&bank.accounts, "0").await?.unwrap_or_default();
                tx.put(&bank.accounts, "0", &Account { balance: shared.balance + 1 })?;
                Ok(version)
            });
            run.await.expect("commits")
        }
    };
    let versions = join_all((1..21).map(|n| pay(n.to_string()))).await;
    assert!(versions.iter().all(|version| version.is_some() && *version == versions[0]));
    assert_eq!(bank.balances(1).await, [120]);
    assert!(bank.sizes.0.lock().iter().any(|size| *size > 2), "{:?}", bank.sizes.0.lock());
}

#[tokio::test(start_paused = true)]
async fn one_of_many_writes_over_a_version() {
    cov_mark::check!(version_of_uncommitted_content);
    let bank = Bank::open(1).await;
    let seen = bank.domain.reader().read(&bank.accounts, "0").await.expect("reads");
    let seen = seen.commit_version();
    assert!(seen.is_some());
    // The content stays the same, so only the version shows the write of another transaction.
    let write = async || {
        let run = bank.domain.transact::<_, Error, _>(async |tx| {
            let is_unchanged = tx.version(&bank.accounts, "0").await? == seen;
            if is_unchanged {
                tx.put(&bank.accounts, "0", &Account { balance: 100 })?;
            }
            Ok(is_unchanged)
        });
        run.await.expect("commits")
    };
    let written = join_all((0..20).map(|_| write())).await;
    assert_eq!(written.iter().filter(|is_written| **is_written).count(), 1, "{written:?}");
}

#[tokio::test(start_paused = true)]
async fn short_timeout_of_a_member_fails_no_other_member() {
    let plan = FaultPlan::none(3).with_delay(1.0, Duration::from_millis(900));
    let slow = FaultStore::new(Arc::new(MemoryStore::new()), plan);
    let slow = Arc::new(slow);
    slow.set_enabled(false);
    let bank = Bank::beside(Arc::new(CountingStore::new(slow.clone()))).await;
    let all = [0, 1, 2, 3, 4, 5].map(|n: usize| n.to_string());
    let put = bank.domain.transact::<_, Error, _>(async |tx| {
        all.iter().try_for_each(|id| tx.put(&bank.accounts, id.as_str(), &Account { balance: 100 }))
    });
    put.await.expect("puts");
    bank.settle().await;
    slow.set_enabled(true);
    let patient = join_all((0..40).map(|n| bank.transfer(n % 6, (n + 1) % 6, 1)));
    let hasty = join_all((0..10).map(|n| {
        let (bank, options) = (&bank, Options::default());
        let options = options.with_timeout(Some(Duration::from_millis(100 * n)));
        async move {
            let run = bank.domain.run(&options, async |tx| {
                let before = tx.get(&bank.accounts, "0").await?.unwrap_or_default();
                tx.put(&bank.accounts, "0", &before)?;
                tx.put(&bank.accounts, "1", &tx.get(&bank.accounts, "1").await?.unwrap_or_default())
            });
            run.await.map(drop)
        }
    }));
    let (patient, _) = tokio::join!(patient, hasty);
    assert!(patient.iter().all(std::result::Result::is_ok), "{patient:?}");
    assert_eq!(bank.balances(6).await.iter().sum::<i64>(), 600);
}
