//! A load whose every effect is known: transfers between accounts, slips that come and go with them, and
//! counters that are written alone.
//!
//! Coordinators, each with a store of its own, move money between accounts under whatever faults a test
//! brings about. A transfer happened if it was acknowledged, or if it was unknown and [`Domain::outcome`] says
//! that it is committed. So in the end every balance is known to the unit, and with it
//!
//! - which *slips* exist: many a transfer also inserts a document, or deletes it if it is there;
//! - what each *tick* shows: a document that one worker counts up alone, in transactions of one document.
//!
//! Meanwhile read-only transactions look at all accounts at once: the sum never changes.
//!
//! ```no_run
//! # async fn demo(store: std::sync::Arc<dyn txn_core::store::Store>) {
//! use txn_tests::ledger::{Ledger, Plan};
//!
//! let ledger = Ledger::open(Plan::new("bank"), vec![store.clone(), store.clone()], store).await;
//! ledger.run(4, ledger.acknowledges(500)).await;
//! println!("{:?}", ledger.counts());
//! assert_eq!(ledger.verify().await, Vec::<String>::new());
//! ledger.close().await;
//! # }
//! ```

mod book;
mod verify;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use txn_core::store::Store;
use txn_core::{Config, Domain};

use crate::bank::{self, Accounts};

use book::Book;

/// How long anything may take that is not meant to fail.
const PATIENCE: Duration = Duration::from_secs(120);

/// Accounts that are opened by one transaction.
const OPENED_AT_ONCE: usize = 50;

/// The shape of a ledger.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// The name of the domain. The collection is `<domain>-ledger`.
    pub domain: String,
    /// How many accounts there are. Few make conflicts.
    pub accounts: usize,
    /// What each account starts with.
    pub opening: i64,
    /// The settings of the coordinators.
    pub config: Config,
    /// Decides which transfers are made.
    pub seed: u64,
}

impl Plan {
    /// Twelve accounts; coordinators that give up a transfer after five seconds.
    #[must_use]
    pub fn new(domain: &str) -> Self {
        Self {
            domain: domain.to_owned(),
            accounts: 12,
            opening: 1_000,
            config: Config::default().with_deadline(Duration::from_secs(5)),
            seed: 0,
        }
    }

    /// Sets [`Plan::accounts`].
    #[must_use]
    pub fn with_accounts(mut self, accounts: usize) -> Self {
        self.accounts = accounts;
        self
    }

    /// Sets [`Plan::config`].
    #[must_use]
    pub fn with_config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Sets [`Plan::seed`].
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The name of the collection.
    #[must_use]
    pub fn collection(&self) -> String {
        format!("{}-ledger", self.domain)
    }
}

/// What was done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Transfers that were acknowledged.
    pub acknowledged: u64,
    /// Transfers that failed, and certainly did not happen.
    pub aborted: u64,
    /// Transfers whose outcome was unknown.
    pub unknown: u64,
    /// Of those, the ones that turned out to be committed.
    pub settled_committed: u64,
    /// Of those, the ones that turned out to be aborted.
    pub settled_aborted: u64,
    /// Acknowledged transactions of one document.
    pub ticks: u64,
    /// Transactions of one document whose outcome is unknown for good.
    pub ticks_unknown: u64,
    /// Looks at all accounts at once that got through.
    pub looks: u64,
    /// Looks and ticks that failed.
    pub failed: u64,
}

#[derive(Debug, Default)]
struct Tally {
    acknowledged: AtomicU64,
    aborted: AtomicU64,
    unknown: AtomicU64,
    settled_committed: AtomicU64,
    settled_aborted: AtomicU64,
    ticks: AtomicU64,
    ticks_unknown: AtomicU64,
    looks: AtomicU64,
    failed: AtomicU64,
}

fn one(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::SeqCst);
}

/// A load with exact books. Cheap to clone; clones share everything.
#[derive(Clone, Debug)]
pub struct Ledger {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    plan: Plan,
    names: Vec<String>,
    coordinators: Vec<(Domain, Accounts)>,
    witness: Domain,
    witness_store: Arc<dyn Store>,
    accounts: Accounts,
    book: Mutex<Book>,
    tally: Tally,
    /// Orders transfers of one worker.
    turns: AtomicU64,
    /// Tells workers of different runs apart.
    runs: AtomicU64,
}

impl Ledger {
    /// Opens the domain once for each of the stores, and once more for a witness whose store meets no faults, and
    /// opens the accounts.
    ///
    /// # Panics
    /// If that fails.
    pub async fn open(
        plan: Plan,
        coordinators: Vec<Arc<dyn Store>>,
        witness: Arc<dyn Store>,
    ) -> Self {
        let witness_store = witness.clone();
        let patient = Config::default().with_janitor_interval(None).with_deadline(PATIENCE);
        let patient = patient.with_lease(plan.config.lease);
        let witness = Domain::create(witness, &plan.domain, patient).await.expect("opens");
        let accounts = bank::open(&witness, &plan.collection()).await;
        let names = bank::names(plan.accounts);
        for names in names.chunks(OPENED_AT_ONCE) {
            bank::fund(&witness, &accounts, names, plan.opening).await;
        }
        let mut opened = Vec::with_capacity(coordinators.len());
        for store in coordinators {
            let domain =
                Domain::create(store, &plan.domain, plan.config.clone()).await.expect("opens");
            let accounts = bank::open(&domain, &plan.collection()).await;
            opened.push((domain, accounts));
        }
        let book = Mutex::new(Book::new(plan.accounts, plan.opening));
        let inner = Inner {
            plan,
            names,
            coordinators: opened,
            witness,
            witness_store,
            accounts,
            book,
            tally: Tally::default(),
            turns: AtomicU64::new(0),
            runs: AtomicU64::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Lets every coordinator run this many workers until `until` resolves. Returns when each has ended what it was
    /// at: nothing of it is under way then but applies. May be called again.
    ///
    /// # Panics
    /// If a worker does.
    pub async fn run(&self, workers: usize, until: impl Future<Output = ()>) {
        let run = self.inner.runs.fetch_add(1, Ordering::SeqCst);
        let over = watch::Sender::new(false);
        let mut tasks = JoinSet::new();
        for coordinator in 0..self.inner.coordinators.len() {
            for worker in 0..workers {
                let worker = work::Worker::new(self.clone(), coordinator, worker, run);
                tasks.spawn(worker.work(over.subscribe()));
            }
        }
        let ended = async {
            while let Some(ended) = tasks.join_next().await {
                ended.expect("no worker fails");
            }
        };
        let until = async {
            until.await;
            over.send_replace(true);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = ended => {}
            () = until => {}
        }
    }

    /// Resolves when so many more transfers than now are acknowledged. What waits for it has to put a bound on it.
    pub fn acknowledges(&self, more: u64) -> impl Future<Output = ()> + Send + use<> {
        let this = self.clone();
        let goal = self.counts().acknowledged + more;
        async move {
            while this.counts().acknowledged < goal {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    /// What was done so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let Tally {
            acknowledged,
            aborted,
            unknown,
            settled_committed,
            settled_aborted,
            ticks,
            ticks_unknown,
            looks,
            failed,
        } = &self.inner.tally;
        let number = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        Counts {
            acknowledged: number(acknowledged),
            aborted: number(aborted),
            unknown: number(unknown),
            settled_committed: number(settled_committed),
            settled_aborted: number(settled_aborted),
            ticks: number(ticks),
            ticks_unknown: number(ticks_unknown),
            looks: number(looks),
            failed: number(failed),
        }
    }

    /// The name of the collection.
    #[must_use]
    pub fn collection(&self) -> &str {
        self.inner.accounts.name()
    }

    /// The witness: it meets no faults.
    #[must_use]
    pub fn witness(&self) -> &Domain {
        &self.inner.witness
    }

    /// What no account of the engine allows, and was seen while the load ran. [`Ledger::verify`] repeats it.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.inner.book.lock().violations.clone()
    }

    /// Shuts all coordinators down, and the witness. Whatever is not applied by then is left to others.
    pub async fn close(self) {
        let domains = self.inner.coordinators.iter().map(|(domain, _)| domain);
        for domain in domains.chain([&self.inner.witness]) {
            domain.shutdown(PATIENCE).await;
        }
    }
}
