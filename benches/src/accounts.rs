//! Accounts in a domain, and transfers between them as transactions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use txn_core::event::{Event, Observer};
use txn_core::store::Store;
use txn_core::{Collection, Config, Domain, Error, Options, Typed};
use txn_es::EsStore;
use txn_sim::{CountingStore, Counts};

use crate::content::Content;
use crate::setup::Setup;
use crate::{Failure, drop_all};

/// One account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// In minor units.
    pub balance: i64,
    /// How often it was changed.
    #[serde(default)]
    pub changes: i64,
    /// What else it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<Value>,
}

impl Default for Account {
    fn default() -> Self {
        Self { balance: 1_000, changes: 0, rest: None }
    }
}

impl Account {
    /// With so much more.
    #[must_use]
    pub fn moved(self, amount: i64) -> Self {
        Self { balance: self.balance + amount, changes: self.changes + 1, ..self }
    }
}

/// What stands in some accounts together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Books {
    /// Their balances.
    pub money: i64,
    /// Their changes.
    pub changes: i64,
}

impl Books {
    /// Adds an account.
    pub fn add(&mut self, account: &Account) {
        self.money += account.balance;
        self.changes += account.changes;
    }
}

/// What the place of a document in a transfer adds to its balance.
#[must_use]
pub fn delta(place: usize) -> i64 {
    if place.is_multiple_of(2) { 1 } else { -1 }
}

/// What a transfer between so many accounts adds to all of them together.
#[must_use]
pub fn added(documents: usize) -> i64 {
    (0..documents).map(delta).sum()
}

/// The ids of the first `n` accounts.
#[must_use]
pub fn ids(n: usize) -> Vec<String> {
    (0..n).map(|n| format!("account-{n:04}")).collect()
}

/// The accounts of a domain, as one process sees them.
#[derive(Debug)]
pub struct Bank {
    /// The engine's domain.
    pub domain: Domain,
    /// Its accounts.
    pub accounts: Collection<Typed<Account>>,
    counting: Arc<CountingStore>,
    witness: Arc<Witness>,
}

impl Bank {
    /// Opens the domain of this name on a server, on connections and clocks of its own, as every process does.
    ///
    /// # Errors
    /// As the server says.
    pub async fn open(setup: &Setup, name: &str, config: Config) -> Result<Self, Failure> {
        let store = EsStore::connect(setup.transactions.clone()).await?;
        Self::with(Arc::new(store), name, config, setup.content).await
    }

    /// The same on any store, with nothing but balances.
    ///
    /// # Errors
    /// As the store says.
    pub async fn on(store: Arc<dyn Store>, name: &str, config: Config) -> Result<Self, Failure> {
        Self::with(store, name, config, Content::default()).await
    }

    async fn with(
        store: Arc<dyn Store>,
        name: &str,
        config: Config,
        content: Content,
    ) -> Result<Self, Failure> {
        let counting = Arc::new(CountingStore::new(store));
        let witness = Arc::new(Witness::new(counting.clone()));
        let config = config.with_janitor_interval(None).with_observer(Some(witness.clone()));
        let domain = Domain::create(counting.clone(), name, config).await?;
        let mappings = content.mappings();
        let accounts = domain.create_collection(&index(name), Some(&mappings)).await?;
        Ok(Self { domain, accounts, counting, witness })
    }

    /// Writes accounts without reading them.
    ///
    /// # Errors
    /// As the engine says.
    pub async fn put(&self, ids: &[String]) -> Result<(), Error> {
        let tx = self.domain.begin(&Options::default())?;
        for id in ids {
            tx.put(&self.accounts, id.as_str(), &Account::default())?;
        }
        tx.commit().await.map(|_| ())
    }

    /// Moves one unit in a circle through the accounts, in one transaction that is never run again, and reads nothing from memory.
    ///
    /// # Errors
    /// As the engine says.
    pub async fn transfer(&self, ids: &[String], options: &Options) -> Result<(), Error> {
        let tx = self.domain.begin(options)?;
        let read = tx.get_many(&self.accounts, ids.iter().map(String::as_str)).await?;
        for (place, (id, account)) in ids.iter().zip(read).enumerate() {
            let moved = account.unwrap_or_default().moved(delta(place));
            tx.put(&self.accounts, id.as_str(), &moved)?;
        }
        tx.commit().await.map(|_| ())
    }

    /// The same in a closure, again as often as others are in the way. Returns how many attempts it took.
    ///
    /// # Errors
    /// As the engine says.
    pub async fn transact(&self, ids: &[String], options: &Options) -> Result<u32, Error> {
        let committed = self
            .domain
            .run(options, async |tx| {
                let read = tx.get_many(&self.accounts, ids.iter().map(String::as_str)).await?;
                for (place, (id, account)) in ids.iter().zip(read).enumerate() {
                    let moved = account.unwrap_or_default().moved(delta(place));
                    tx.put(&self.accounts, id.as_str(), &moved)?;
                }
                Ok::<_, Error>(())
            })
            .await?;
        Ok(committed.receipt.attempts)
    }

    /// Reads accounts in a read-only transaction. Returns how many attempts it took.
    ///
    /// # Errors
    /// As the engine says.
    pub async fn look(&self, ids: &[String]) -> Result<u32, Error> {
        let options = Options::default().with_read_only(true);
        let committed = self
            .domain
            .run(&options, async |tx| {
                tx.get_many(&self.accounts, ids.iter().map(String::as_str)).await.map(|_| ())
            })
            .await?;
        Ok(committed.receipt.attempts)
    }

    /// What stands in accounts together.
    ///
    /// # Errors
    /// As the engine says.
    pub async fn books(&self, ids: &[String]) -> Result<Books, Error> {
        let mut books = Books::default();
        for ids in ids.chunks(500) {
            let keys = ids.iter().map(String::as_str);
            let read = self.domain.reader().get_many(&self.accounts, keys).await?;
            read.iter().flatten().for_each(|account| books.add(account));
        }
        Ok(books)
    }

    /// Waits until everything that was committed is applied.
    ///
    /// # Errors
    /// As the engine says.
    pub async fn settle(&self) -> Result<(), Failure> {
        for _ in 0..200 {
            if self.domain.inspect().await?.is_clean() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err("transactions are left over".into())
    }

    /// What was asked of the store so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counting.counts()
    }

    /// How many commits there were, of transactions or of groups, and how many documents they wrote.
    #[must_use]
    pub fn commits(&self) -> (u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.witness.commits), read(&self.witness.written))
    }

    /// What had been asked of the store when the last commit was acknowledged.
    #[must_use]
    pub fn counts_at_commit(&self) -> Option<Counts> {
        self.witness.at_commit.lock().ok().and_then(|mut counts| counts.take())
    }

    /// Ends, and leaves to others what is there.
    pub async fn leave(&self) {
        self.domain.shutdown(Duration::from_secs(10)).await;
    }

    /// Ends, and drops the domain.
    ///
    /// # Errors
    /// As the server says.
    pub async fn close(&self) -> Result<(), Failure> {
        self.leave().await;
        drop_all(&*self.counting, self.domain.name()).await
    }
}

/// The index of the accounts of a domain.
#[must_use]
pub fn index(domain: &str) -> String {
    format!("{domain}-accounts")
}

/// Notes the counts at the commit point, before the apply goes on, and counts commits.
#[derive(Debug)]
struct Witness {
    counting: Arc<CountingStore>,
    at_commit: Mutex<Option<Counts>>,
    commits: AtomicU64,
    written: AtomicU64,
}

impl Witness {
    fn new(counting: Arc<CountingStore>) -> Self {
        let (commits, written) = Default::default();
        Self { counting, at_commit: Mutex::default(), commits, written }
    }
}

impl Observer for Witness {
    fn on_event(&self, event: &Event) {
        if let Event::Committed { written, .. } = event {
            self.commits.fetch_add(1, Ordering::Relaxed);
            self.written.fetch_add(*written as u64, Ordering::Relaxed);
            if let Ok(mut counts) = self.at_commit.lock() {
                *counts = Some(self.counting.counts());
            }
        }
    }
}
