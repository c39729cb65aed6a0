//! Accounts in a domain, and transfers between them as transactions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use txn_core::event::{Event, Observer};
use txn_core::store::Store;
use txn_core::{Collection, Config, Domain, Error, JanitorReport, Options, Typed};
use txn_es::EsStore;
use txn_sim::{CountingStore, Counts};

use crate::content::Content;
use crate::setup::Setup;
use crate::{Failure, drop_all};

/// One account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// The balance in minor units.
    pub balance: i64,
    /// The number of changes.
    #[serde(default)]
    pub changes: i64,
    /// Further content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<Value>,
}

impl Default for Account {
    fn default() -> Self {
        Self { balance: 1_000, changes: 0, rest: None }
    }
}

impl Account {
    /// Returns the account with a changed balance.
    #[must_use]
    pub fn moved(self, amount: i64) -> Self {
        Self { balance: self.balance + amount, changes: self.changes + 1, ..self }
    }
}

/// The sums over some accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Books {
    /// The sum of the balances.
    pub money: i64,
    /// The sum of the changes.
    pub changes: i64,
}

impl Books {
    /// Adds an account.
    pub fn add(&mut self, account: &Account) {
        self.money += account.balance;
        self.changes += account.changes;
    }
}

/// Returns a document's change of balance, by position in the transfer.
#[must_use]
pub fn delta(place: usize) -> i64 {
    if place.is_multiple_of(2) { 1 } else { -1 }
}

/// Returns the change of the total balance by one transfer.
///
/// `documents` is the number of accounts of the transfer.
#[must_use]
pub fn added(documents: usize) -> i64 {
    (0..documents).map(delta).sum()
}

/// Returns the ids of the first `n` accounts.
#[must_use]
pub fn ids(n: usize) -> Vec<String> {
    (0..n).map(|n| format!("account-{n:04}")).collect()
}

/// The accounts of a domain, as one process sees them.
#[derive(Debug)]
pub struct Bank {
    /// The engine's domain.
    pub domain: Domain,
    /// The collection of accounts.
    pub accounts: Collection<Typed<Account>>,
    counting: Arc<CountingStore>,
    witness: Arc<Witness>,
}

impl Bank {
    /// Opens a domain on a server, with own connections and clocks.
    ///
    /// Each process opens the domain in this way.
    ///
    /// # Errors
    /// As the server.
    pub async fn open(setup: &Setup, name: &str, config: Config) -> Result<Self, Failure> {
        let store = EsStore::connect(setup.transactions.clone()).await?;
        Self::with(Arc::new(store), name, config, setup.content).await
    }

    /// Opens a domain on any store, with only balances.
    ///
    /// # Errors
    /// As the store.
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
        let domain = Domain::open_or_create(counting.clone(), name, config).await?;
        let mappings = content.mappings();
        let accounts = domain.create_collection(&index(name), Some(&mappings)).await?;
        Ok(Self { domain, accounts, counting, witness })
    }

    /// Writes accounts without reading them.
    ///
    /// # Errors
    /// As the engine.
    pub async fn put(&self, ids: &[String]) -> Result<(), Error> {
        let tx = self.domain.begin(&Options::default())?;
        for id in ids {
            tx.put(&self.accounts, id.as_str(), &Account::default())?;
        }
        tx.commit().await.map(|_| ())
    }

    /// Moves one unit in a circle through the accounts, in one attempt.
    ///
    /// The attempt is never repeated, and reads nothing from memory.
    ///
    /// # Errors
    /// As the engine.
    pub async fn transfer(&self, ids: &[String], options: &Options) -> Result<(), Error> {
        let tx = self.domain.begin(options)?;
        let read = tx.get_many(&self.accounts, ids.iter().map(String::as_str)).await?;
        for (place, (id, account)) in ids.iter().zip(read).enumerate() {
            let moved = account.unwrap_or_default().moved(delta(place));
            tx.put(&self.accounts, id.as_str(), &moved)?;
        }
        tx.commit().await.map(|_| ())
    }

    /// Moves one unit in a closure, and returns the number of attempts.
    ///
    /// The engine repeats the closure after conflicts.
    ///
    /// # Errors
    /// As the engine.
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

    /// Reads accounts in a read-only transaction, and returns the number of attempts.
    ///
    /// # Errors
    /// As the engine.
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

    /// Returns the sums over accounts.
    ///
    /// # Errors
    /// As the engine.
    pub async fn books(&self, ids: &[String]) -> Result<Books, Error> {
        let mut books = Books::default();
        for ids in ids.chunks(500) {
            let keys = ids.iter().map(String::as_str);
            let read = self.domain.reader().get_many(&self.accounts, keys).await?;
            read.iter().flatten().for_each(|account| books.add(account));
        }
        Ok(books)
    }

    /// Waits until every commit is applied.
    ///
    /// # Errors
    /// As the engine.
    pub async fn settle(&self) -> Result<(), Failure> {
        let mut report = JanitorReport::default();
        // A release that outlasts its lease on an overloaded server is left to the janitor.
        for _ in 0..1_500 {
            report = self.domain.admin().inspect().await?;
            if report.is_clean() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err(format!("transactions are left over: {report:?}").into())
    }

    /// Returns the counts of requests to the store so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counting.counts()
    }

    /// Returns the number of commits, and of the documents that they wrote.
    ///
    /// A group counts as one commit.
    #[must_use]
    pub fn commits(&self) -> (u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.witness.commits), read(&self.witness.written))
    }

    /// Returns the counts of requests at the acknowledgement of the last commit.
    #[must_use]
    pub fn counts_at_commit(&self) -> Option<Counts> {
        self.witness.at_commit.lock().ok().and_then(|mut counts| counts.take())
    }

    /// Shuts the domain down, and keeps its data for other processes.
    pub async fn leave(&self) {
        self.domain.shutdown(Duration::from_secs(10)).await;
    }

    /// Shuts the domain down, and drops it.
    ///
    /// # Errors
    /// As the server.
    pub async fn close(&self) -> Result<(), Failure> {
        self.leave().await;
        drop_all(&*self.counting, self.domain.name()).await
    }
}

/// Returns the index of the accounts of a domain.
#[must_use]
pub fn index(domain: &str) -> String {
    format!("{domain}-accounts")
}

/// Records the counts at the acknowledgement, before the apply, and counts commits.
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
