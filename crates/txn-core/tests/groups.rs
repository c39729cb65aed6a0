//! Transactions of one process that are composed, in virtual time: on a store that takes two milliseconds for each request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use txn_core::event::{Event, Observer};
use txn_core::store::{
    Layer, MemoryStore, Outcome, Read, Refusal, RefusalKind, Store, Write, WriteOp,
};
use txn_core::{Collection, Config, Domain, Error, ErrorKind, Options, Result, Typed, fields};
use txn_sim::{CountingStore, FaultPlan, FaultStore};

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Account {
    balance: i64,
}

type Accounts = Collection<Typed<Account>>;

/// How many transactions were composed, group by group, and how many documents were locked over the commit before.
#[derive(Debug, Default)]
struct Sizes(Mutex<Vec<usize>>, AtomicU32);

impl Observer for Sizes {
    fn on_event(&self, event: &Event) {
        match event {
            Event::Composed { transactions, .. } => self.0.lock().push(*transactions),
            Event::LockedOver { documents, .. } => {
                self.1.fetch_add(u32::try_from(documents.len()).unwrap_or(1), Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

/// Why a transfer did not happen.
#[derive(Debug)]
enum Refused {
    Poor,
    Failed(#[expect(dead_code, reason = "shown where a test fails")] Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

struct Bank {
    store: Arc<CountingStore>,
    domain: Domain,
    accounts: Accounts,
    sizes: Arc<Sizes>,
}

impl Bank {
    /// Accounts `0` to `n - 1` with 100 each.
    async fn open(n: usize) -> Self {
        let plan = FaultPlan::none(1).with_delay(1.0, Duration::from_millis(2));
        let slow = FaultStore::new(Arc::new(MemoryStore::new()), plan);
        let bank = Self::beside(Arc::new(CountingStore::new(Arc::new(slow)))).await;
        let put = bank.domain.transact::<_, Error, _>(async |tx| {
            (0..n).try_for_each(|id| {
                tx.put(&bank.accounts, id.to_string(), &Account { balance: 100 })
            })
        });
        put.await.expect("puts");
        bank
    }

    /// Another process.
    async fn beside(store: Arc<CountingStore>) -> Self {
        let sizes = Arc::new(Sizes::default());
        let config = Config::default()
            .with_janitor_interval(None)
            .with_groups(Some(true))
            .with_observer(Some(sizes.clone()));
        let domain = Domain::create(store.clone(), "bank", config).await.expect("opens");
        let accounts = domain.create_collection("accounts", None).await.expect("opens");
        Self { store, domain, accounts, sizes }
    }

    async fn add(&self, id: usize, amount: i64) -> Result<u32> {
        let options = Options::default();
        let committed = self.domain.run(&options, async |tx| {
            let id = id.to_string();
            let before = tx.get(&self.accounts, id.as_str()).await?.unwrap_or_default();
            tx.put(&self.accounts, id, &Account { balance: before.balance + amount })
        });
        Ok(committed.await?.receipt.attempts)
    }

    async fn transfer(&self, from: usize, to: usize, amount: i64) -> Result<u32, Refused> {
        let options = Options::default();
        let committed = self.domain.run(&options, async |tx| {
            let (from, to) = (from.to_string(), to.to_string());
            let mut payer = tx.get(&self.accounts, from.as_str()).await?.unwrap_or_default();
            let mut payee = tx.get(&self.accounts, to.as_str()).await?.unwrap_or_default();
            if payer.balance < amount {
                return Err(Refused::Poor);
            }
            payer.balance -= amount;
            payee.balance += amount;
            tx.put(&self.accounts, from, &payer)?;
            Ok(tx.put(&self.accounts, to, &payee)?)
        });
        Ok(committed.await?.receipt.attempts)
    }

    /// Takes what stands in account `0`, which is only read, from another.
    async fn pay_fee(&self, id: usize) -> Result<()> {
        let pay = self.domain.transact(async |tx| {
            let fee = tx.get(&self.accounts, "0").await?.unwrap_or_default().balance;
            let mine = tx.get(&self.accounts, id.to_string()).await?.unwrap_or_default();
            tx.put(&self.accounts, id.to_string(), &Account { balance: mine.balance - fee })
        });
        pay.await
    }

    async fn balances(&self, n: usize) -> Vec<i64> {
        let ids = (0..n).map(|id| id.to_string());
        let found = self.domain.reader().get_many(&self.accounts, ids).await.expect("reads");
        found.into_iter().map(|account| account.map_or(0, |account| account.balance)).collect()
    }
}

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
async fn nobody_fails_another() {
    let bank = Bank::open(3).await;
    let existing = || async {
        let insert = bank.domain.transact(async |tx| {
            let seen = tx.get(&bank.accounts, "1").await?.unwrap_or_default();
            tx.put(&bank.accounts, "1", &seen)?;
            tx.insert(&bank.accounts, "0", &Account::default())
        });
        insert.await.expect_err("it exists").kind()
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
async fn closures_that_take_their_time_keep_nobody_waiting() {
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
async fn callers_that_go_away_leave_or_are_committed_whole() {
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
    assert!(reader.domain.inspect().await.expect("looks").is_clean());
}

#[tokio::test(start_paused = true)]
async fn what_another_process_changed_holds_up_only_those_who_use_it() {
    cov_mark::check!(contested_documents_are_locked_first);
    let ours = Bank::open(40).await;
    let theirs = Bank::beside(ours.store.clone()).await;
    let pairs =
        |bank| join_all((0..20_usize).map(move |n| Bank::transfer(bank, 2 * n, 2 * n + 1, 1)));
    // Both remember what the other changes.
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
async fn an_older_transaction_that_waits_goes_first() {
    let bank = Bank::open(2).await;
    let options = Options::default().with_pessimistic(true);
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
    // Each paid the fee before the change, or behind it.
    assert!(balances[1..].iter().all(|balance| [0, 99].contains(balance)), "{balances:?}");
}

#[tokio::test(start_paused = true)]
async fn who_shares_a_document_with_one_set_aside_is_committed_once() {
    cov_mark::check!(members_set_aside);
    let ours = Bank::open(21).await;
    let theirs = Bank::beside(ours.store.clone()).await;
    // Remembered, so that their first request is the group's.
    assert_eq!(join_all((0..21).map(|n| ours.add(n, 0))).await.len(), 21);
    let options = Options::default().with_pessimistic(true);
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
async fn only_the_last_who_wrote_a_document_has_the_version_of_the_commit() {
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
            run.await.map(|committed| committed.receipt.commit_tid).expect("commits")
        }
    };
    let versions = join_all((0..20).map(|_| run(options.clone()))).await;
    let last = bank.domain.reader().read(&bank.accounts, "0").await.expect("reads").tid();
    assert_eq!(versions.iter().filter(|version| **version == last).count(), 1);
    assert!(versions.iter().filter(|version| version.is_none()).count() >= 10);
    let versions = join_all((0..5).map(|_| run(options.clone().with_by_itself(true)))).await;
    assert!(versions.iter().all(Option::is_some));
    assert_eq!(bank.balances(2).await, [125, 125]);
}

#[tokio::test(start_paused = true)]
async fn who_has_little_time_leaves_the_others_theirs() {
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
    while !bank.domain.inspect().await.expect("looks").is_clean() {
        sleep(Duration::from_millis(1)).await;
    }
    slow.set_enabled(true);
    let patient = join_all((0..40).map(|n| bank.transfer(n % 6, (n + 1) % 6, 1)));
    let hasty = join_all((0..10).map(|n| {
        let (bank, options) = (&bank, Options::default());
        let options = options.with_deadline(Some(Duration::from_millis(100 * n)));
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

/// Transfers one after the other between the same two accounts, with what they cost the store.
async fn back_to_back(bank: &Bank, n: usize) -> txn_sim::Counts {
    let before = bank.store.counts();
    for _ in 0..n {
        bank.transfer(0, 1, 1).await.expect("commits");
    }
    while !bank.domain.inspect().await.expect("looks").is_clean() {
        sleep(Duration::from_millis(10)).await;
    }
    bank.store.counts().since(before)
}

#[tokio::test(start_paused = true)]
async fn what_is_written_again_is_locked_over_the_commit() {
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
async fn what_is_deleted_and_inserted_again_is_locked_over_the_commit() {
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
    while !bank.domain.inspect().await.expect("looks").is_clean() {
        sleep(Duration::from_millis(10)).await;
    }
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

/// Refuses, once, the lock on a document that is written over the lock of another transaction; what others do meanwhile is in
/// between.
#[derive(Debug)]
struct Refusing {
    inner: Arc<dyn Store>,
    id: &'static str,
    with: Outcome,
    armed: AtomicBool,
    refuses: Notify,
    go_on: Notify,
}

impl Refusing {
    fn new(inner: Arc<dyn Store>, id: &'static str, with: Outcome) -> Arc<Self> {
        let (armed, refuses, go_on) = (AtomicBool::new(false), Notify::new(), Notify::new());
        Arc::new(Self { inner, id, with, armed, refuses, go_on })
    }

    async fn is_lock_over(&self, write: &Write) -> bool {
        let lock = format!("\"{}\":", fields::TRANSACTION_TID);
        let WriteOp::Replace(source, _) = &write.op else { return false };
        let stands = self.inner.read_primary(std::slice::from_ref(&write.key)).await;
        let is_locked =
            |read: &Read| matches!(read, Read::Found { source, .. } if source.contains(&lock));
        source.contains(&lock) && stands.iter().all(is_locked)
    }
}

#[async_trait]
impl Layer for Refusing {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let is_lock = |write: &Write| matches!(write.op, WriteOp::Replace(..));
        let on_one = writes.iter().position(|w| w.key.id.as_ref() == self.id && is_lock(w));
        if let Some(at) = on_one
            && self.is_lock_over(&writes[at]).await
            && self.armed.swap(false, Ordering::Relaxed)
        {
            self.refuses.notify_one();
            self.go_on.notified().await;
            let mut others = writes.to_vec();
            others.remove(at);
            let mut outcomes = self.inner.write_many(&others).await;
            outcomes.insert(at, self.with.clone());
            return outcomes;
        }
        self.inner.write_many(writes).await
    }
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
    tokio::time::timeout(Duration::from_secs(60), both)
        .await
        .expect("a lock is written over a commit");
    let settled = bank.domain.shutdown(Duration::from_secs(60));
    assert!(settled.await);
    assert_eq!(others.balances(2).await, [96, 154]);
}

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
    for _ in 0..4 {
        theirs.transfer(0, 1, 1).await.expect("commits");
        ours.transfer(1, 0, 1).await.expect("commits");
    }
    (ours, theirs)
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
    assert!(stood < Duration::from_millis(300), "{stood:?}");
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
