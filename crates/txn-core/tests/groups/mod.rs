//! Group commit, in virtual time, with 2 ms for each request.

mod bulkheads;
mod cache;
mod composed;
mod handoff;
mod reading;
mod refusing;
mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;
use txn_core::event::{Event, Observer};
use txn_core::store::{MemoryStore, Store};
use txn_core::{Collection, Config, Domain, Error, Options, Result, Typed};
use txn_sim::{CountingStore, FaultPlan, FaultStore};

use crate::support::Dice;

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Account {
    balance: i64,
}

type Accounts = Collection<Typed<Account>>;

/// The sizes of the groups, and the number of hand-offs of documents.
#[derive(Debug, Default)]
struct Sizes(Mutex<Vec<usize>>, AtomicU32);

impl Observer for Sizes {
    fn on_event(&self, event: &Event) {
        match event {
            Event::GroupFormed { transactions, .. } => self.0.lock().push(*transactions),
            Event::HandedOff { documents, .. } => {
                self.1.fetch_add(u32::try_from(documents.len()).unwrap_or(1), Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

/// The reason why a transfer failed.
#[derive(Debug)]
enum Refused {
    Poor,
    Failed(Error),
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
    /// Opens a bank with `n` accounts of 100 each.
    async fn open(n: usize) -> Self {
        Self::on(Self::slow_store(), n).await
    }

    fn slow_store() -> Arc<dyn Store> {
        let plan = FaultPlan::none(1).with_delay(1.0, Duration::from_millis(2));
        Arc::new(FaultStore::new(Arc::new(MemoryStore::new()), plan))
    }

    /// Opens the same bank on another store.
    async fn on(store: Arc<dyn Store>, n: usize) -> Self {
        Self::funded(Self::beside(Arc::new(CountingStore::new(store))).await, n).await
    }

    /// Opens a bank whose random pauses follow from a seed.
    async fn seeded(n: usize, seed: u64) -> Self {
        let store = Arc::new(CountingStore::new(Self::slow_store()));
        Self::funded(Self::seeded_beside(store, seed).await, n).await
    }

    async fn funded(bank: Self, n: usize) -> Self {
        let put = bank.domain.transact::<_, Error, _>(async |tx| {
            (0..n).try_for_each(|id| {
                tx.put(&bank.accounts, id.to_string(), &Account { balance: 100 })
            })
        });
        put.await.expect("puts");
        bank
    }

    /// Opens another process on the store.
    async fn beside(store: Arc<CountingStore>) -> Self {
        Self::with_config(store, Config::default()).await
    }

    /// As [`Self::beside`], with random pauses from an own seed.
    async fn seeded_beside(store: Arc<CountingStore>, seed: u64) -> Self {
        Self::with_config(store, Config::default().with_entropy(Dice::new(seed))).await
    }

    async fn with_config(store: Arc<CountingStore>, config: Config) -> Self {
        let sizes = Arc::new(Sizes::default());
        let config = config
            .with_janitor_interval(None)
            .with_group_commit(Some(true))
            .with_observer(Some(sizes.clone()));
        let domain = Domain::open_or_create(store.clone(), "bank", config).await.expect("opens");
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

    /// Subtracts the balance of account `0` from another account. Account `0` is only read.
    async fn pay_fee(&self, id: usize) -> Result<()> {
        let pay = self.domain.transact(async |tx| {
            let fee = tx.get(&self.accounts, "0").await?.unwrap_or_default().balance;
            let mine = tx.get(&self.accounts, id.to_string()).await?.unwrap_or_default();
            tx.put(&self.accounts, id.to_string(), &Account { balance: mine.balance - fee })
        });
        pay.await
    }

    /// Waits until every commit is applied.
    async fn settle(&self) {
        while !self.domain.admin().inspect().await.expect("inspects").is_clean() {
            sleep(Duration::from_millis(1)).await;
        }
    }

    async fn balances(&self, n: usize) -> Vec<i64> {
        let ids = (0..n).map(|id| id.to_string());
        let found = self.domain.reader().get_many(&self.accounts, ids).await.expect("reads");
        found.into_iter().map(|account| account.map_or(0, |account| account.balance)).collect()
    }
}
