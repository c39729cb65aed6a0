//! The fixture of one schedule.
//!
//! The fixture has a store, two processes, and a final check.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use txn_core::event::{Event, Observer};
use txn_core::store::Store;
use txn_core::{
    AttemptId, Collection, Config, Domain, Error, ErrorKind, LockMode, Options, Receipt,
    Transaction, Typed, WaitFor,
};
use txn_sim::tapped::{ApplyGate, Tapped};

/// The longest time for a step that must succeed.
const PATIENCE: Duration = Duration::from_secs(120);

/// The content of a document: a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// The number.
    pub n: i64,
}

/// The documents of a schedule.
pub type Items = Collection<Typed<Item>>;

/// The processes of the two sessions of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processes {
    /// A single process: the sessions queue.
    One,
    /// Two processes, which share only the store.
    Two,
}

/// Options of a transaction that locks at each read, and has a record of its own.
#[must_use]
pub fn locking() -> Options {
    Options::default().with_lock_mode(LockMode::AtRead).with_own_record(true)
}

/// The fixture of one schedule.
#[derive(Debug)]
pub struct Fixture {
    /// The first process. [`Fixture::gate`] can delay its applies.
    pub a: Process,
    /// The second process, perhaps the same.
    pub b: Process,
    /// Delays the applies of the first process.
    pub gate: Arc<ApplyGate>,
    store: Arc<dyn Store>,
    log: Arc<Log>,
    name: String,
    collection: String,
}

/// A process: a domain and its documents.
#[derive(Clone, Debug)]
pub struct Process {
    /// The domain.
    pub domain: Domain,
    /// The documents.
    pub items: Items,
}

#[derive(Debug, Default)]
struct Log(Mutex<Vec<Event>>);

impl Observer for Log {
    fn on_event(&self, event: &Event) {
        self.0.lock().push(event.clone());
    }
}

impl Fixture {
    /// Opens a domain and a collection, in one process or in two.
    ///
    /// # Panics
    /// If the store fails.
    pub async fn open(
        store: Arc<dyn Store>,
        name: &str,
        collection: &str,
        processes: Processes,
    ) -> Self {
        let (gate, log) = (Arc::new(ApplyGate::default()), Arc::new(Log::default()));
        let tapped = Arc::new(Tapped::new(store.clone(), gate.clone()));
        let a = Process::open(tapped, name, collection, &log).await;
        let b = match processes {
            Processes::One => a.clone(),
            Processes::Two => Process::open(store.clone(), name, collection, &log).await,
        };
        let (name, collection) = (name.to_owned(), collection.to_owned());
        Self { a, b, gate, store, log, name, collection }
    }

    /// A further process, without a delay of its applies.
    pub async fn another(&self) -> Process {
        Process::open(self.store.clone(), &self.name, &self.collection, &self.log).await
    }

    /// The store itself.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Writes the initial documents, and waits for the apply.
    ///
    /// # Panics
    /// If the store fails.
    pub async fn put(&self, documents: &[(&str, i64)]) {
        let options = Options::default().with_wait_for(WaitFor::Apply);
        let items = &self.a.items;
        let put = async |tx: &Transaction| {
            documents.iter().try_for_each(|(id, n)| tx.insert(items, *id, &Item { n: *n }))
        };
        let tx = self.a.domain.begin(&options).expect("begins");
        put(&tx).await.expect("takes them");
        tx.commit().await.expect("commits");
    }

    /// The content of documents, as the primaries answer.
    ///
    /// # Panics
    /// If the primaries do not answer.
    pub async fn state(&self, ids: &[&str]) -> Vec<Option<i64>> {
        let reader = self.b.domain.reader().verified();
        let found = reader.get_many(&self.b.items, ids.iter().copied()).await.expect("reads");
        found.into_iter().map(|item| item.map(|item| item.n)).collect()
    }

    /// How often one transaction has wounded another.
    #[must_use]
    pub fn wounds(&self) -> usize {
        let log = self.log.0.lock();
        log.iter().filter(|event| matches!(event, Event::Wounded { .. })).count()
    }

    /// Shuts both processes down, and checks that no work is left.
    ///
    /// # Panics
    /// If some work is left.
    pub async fn close(self) {
        for process in [&self.a, &self.b] {
            assert!(process.domain.shutdown(PATIENCE).await, "drained");
        }
        let report = self.b.domain.admin().inspect().await.expect("looks");
        assert!(report.is_clean(), "left over: {report:?}");
    }
}

impl Process {
    async fn open(store: Arc<dyn Store>, name: &str, collection: &str, log: &Arc<Log>) -> Self {
        // No attempt counts as dead, even on a slow machine, and no janitor interferes.
        let config = Config::default()
            .with_janitor_interval(None)
            .with_lease(Duration::from_secs(20))
            .with_attempt_timeout(PATIENCE)
            .with_timeout(PATIENCE)
            .with_observer(Some(log.clone()));
        let domain = Domain::open_or_create(store, name, config).await.expect("opens");
        let items = domain.create_collection(collection, None).await.expect("opens");
        Self { domain, items }
    }

    /// Begins a transaction that the schedule steps through.
    ///
    /// The transaction locks at its end.
    #[must_use]
    pub fn begin(&self) -> Session {
        self.begin_with(&Options::default())
    }

    /// Begins a transaction that locks at each read.
    #[must_use]
    pub fn begin_locking(&self) -> Session {
        self.begin_with(&locking())
    }

    /// Begins a read-only transaction.
    #[must_use]
    pub fn begin_read_only(&self) -> Session {
        self.begin_with(&Options::default().with_read_only(true))
    }

    /// Begins a transaction with options.
    ///
    /// # Panics
    /// If the process is shut down.
    #[must_use]
    pub fn begin_with(&self, options: &Options) -> Session {
        let tx = self.domain.begin(options).expect("begins");
        Session { tx, items: self.items.clone() }
    }

    /// Waits until new transactions of this process are younger than another one.
    ///
    /// The other one needs a record of its own, as [`locking`] has.
    ///
    /// Each process has an estimate of its own of the server's time, and ages follow this estimate.
    ///
    /// # Panics
    /// If the process is shut down.
    pub async fn is_younger_than(&self, older: &Session) {
        loop {
            let session = self.begin_locking();
            let is_younger = session.tid() > older.tid();
            session.rollback().await;
            if is_younger {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Reads without a transaction and without locks.
    ///
    /// # Panics
    /// If the store does not answer.
    pub async fn look(&self, ids: &[&str]) -> Vec<Option<i64>> {
        let ids = ids.iter().copied();
        let found = self.domain.reader().get_many(&self.items, ids).await.expect("reads");
        found.into_iter().map(|item| item.map(|item| item.n)).collect()
    }

    /// Reads by a read-only transaction, with retries.
    ///
    /// # Panics
    /// If the transaction does not commit.
    pub async fn snapshot(&self, ids: &[&str]) -> Vec<Option<i64>> {
        let options = Options::default().with_read_only(true);
        let items = &self.items;
        let read = self
            .domain
            .run::<_, Error, _>(&options, async |tx| tx.get_many(items, ids.iter().copied()).await);
        let found = read.await.expect("gets through").value;
        found.into_iter().map(|item| item.map(|item| item.n)).collect()
    }

    /// Adds to a document by a transaction, with retries.
    ///
    /// # Panics
    /// If the transaction does not commit.
    pub async fn add(&self, id: &str, n: i64) {
        let items = &self.items;
        let add = self.domain.transact::<_, Error, _>(async |tx| {
            let item = tx.get(items, id).await?.unwrap_or_default();
            tx.put(items, id, &Item { n: item.n + n })
        });
        add.await.expect("gets through");
    }
}

/// A transaction without retries, step by step. All steps before its end must succeed.
#[derive(Debug)]
pub struct Session {
    tx: Transaction,
    items: Items,
}

impl Session {
    /// Returns the tid of a transaction with a record of its own.
    fn tid(&self) -> AttemptId {
        self.tx.tid().expect("has its own record")
    }

    /// Reads one document.
    ///
    /// # Panics
    /// If the read fails.
    pub async fn get(&self, id: &str) -> Option<i64> {
        self.try_get(id).await.expect("reads")
    }

    /// Reads one document, in a transaction that may have been wounded.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn try_get(&self, id: &str) -> Result<Option<i64>, Error> {
        Ok(self.tx.get(&self.items, id).await?.map(|item| item.n))
    }

    /// Writes one document.
    ///
    /// # Panics
    /// If the write fails.
    pub fn put(&self, id: &str, n: i64) {
        self.tx.put(&self.items, id, &Item { n }).expect("takes it");
    }

    /// Inserts one document.
    ///
    /// # Panics
    /// If the insert fails.
    pub fn insert(&self, id: &str, n: i64) {
        self.tx.insert(&self.items, id, &Item { n }).expect("takes it");
    }

    /// Inserts one document that this transaction may have written itself.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub fn try_insert(&self, id: &str, n: i64) -> Result<(), Error> {
        self.tx.insert(&self.items, id, &Item { n })
    }

    /// Deletes one document.
    ///
    /// # Panics
    /// If the deletion fails.
    pub fn delete(&self, id: &str) {
        self.tx.delete(&self.items, id).expect("takes it");
    }

    /// Commits.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub async fn commit(self) -> Result<Receipt, Error> {
        self.tx.commit().await
    }

    /// Commits, and expects success.
    ///
    /// # Panics
    /// If the commit fails.
    pub async fn commits(self) {
        self.tx.commit().await.expect("commits");
    }

    /// Commits, and expects a conflict with another transaction. Nothing is changed then.
    ///
    /// # Panics
    /// If the commit succeeds, or fails for another reason.
    pub async fn conflicts(self) {
        self.fails(ErrorKind::Conflict).await;
    }

    /// Commits, and expects this error.
    ///
    /// # Panics
    /// If the commit succeeds, or fails for another reason.
    pub async fn fails(self, kind: ErrorKind) {
        let error = self.tx.commit().await.expect_err("must not commit");
        assert_eq!(error.kind(), kind, "{error}");
    }

    /// Rolls back.
    pub async fn rollback(self) {
        self.tx.rollback().await;
    }
}
