//! A shop with processes that die and collections that are closed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use crate::support::{Item, Items, Log};
use async_trait::async_trait;
use parking_lot::Mutex;
use txn_core::store::{
    Key, Layer, MemoryStore, Outcome, Read, Source, Store, StoreError, StoreErrorKind, Version,
    Write, WriteOp,
};
use txn_core::{AttemptId, Config, Domain, Error, Options, WaitFor, record::State};
use txn_sim::{CountingStore, Counts};

/// The moment from which the writes of a process no longer arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dies {
    Never,
    BeforeCommit,
    AfterCommit,
    /// The store refuses writes of documents after the commit.
    ///
    /// The process lives on, and its writes arrive again once `held_back` is cleared.
    HeldBackAfterCommit,
}

/// The store as one process sees it.
#[derive(Debug)]
pub(crate) struct Frail {
    inner: Arc<dyn Store>,
    dies: Dies,
    dead: AtomicBool,
    /// The closed collections, shared by all processes.
    closed: Arc<Mutex<BTreeSet<String>>>,
    /// Whether writes of documents are refused.
    pub(crate) held_back: AtomicBool,
}

impl Frail {
    fn is_closed(&self, collection: &str) -> bool {
        self.closed.lock().contains(collection)
    }

    fn is_commit(write: &Write) -> bool {
        let (WriteOp::Create(source) | WriteOp::Replace(source, _)) = &write.op else {
            return false;
        };
        write.require_alias && source.contains("\"state\":\"committed\"")
    }

    async fn write(&self, write: &Write) -> Outcome {
        if self.dies == Dies::BeforeCommit && Self::is_commit(write) {
            self.dead.store(true, Ordering::SeqCst);
        }
        if self.dead.load(Ordering::SeqCst) && write.op.changes() {
            return Outcome::Rejected("the process is dead".to_owned());
        }
        if self.is_closed(&write.key.collection)
            || self.held_back.load(Ordering::SeqCst) && !write.require_alias
        {
            return Outcome::RejectedInDoubt("index_closed_exception".to_owned());
        }
        let outcomes = self.inner.write_many(std::slice::from_ref(write)).await;
        if self.dies == Dies::AfterCommit && Self::is_commit(write) {
            self.dead.store(true, Ordering::SeqCst);
        }
        if self.dies == Dies::HeldBackAfterCommit && Self::is_commit(write) {
            self.held_back.store(true, Ordering::SeqCst);
        }
        outcomes.into_iter().next().expect("one outcome")
    }

    fn closed_error() -> StoreError {
        StoreError::new(StoreErrorKind::Unavailable, "index_closed_exception")
    }

    fn shut(&self, keys: &[Key], mut reads: Vec<Read>) -> Vec<Read> {
        for (key, read) in keys.iter().zip(&mut reads) {
            if self.is_closed(&key.collection) {
                *read = Read::Unavailable(Self::closed_error());
            }
        }
        reads
    }
}

#[async_trait]
impl Layer for Frail {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        self.shut(keys, self.inner.get_many(keys).await)
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        self.shut(keys, self.inner.read_primary(keys).await)
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for write in writes {
            outcomes.push(self.write(write).await);
        }
        outcomes
    }
}

/// A process with a domain and items, on a counting store.
pub(crate) struct Process {
    pub(crate) store: Arc<CountingStore>,
    pub(crate) frail: Arc<Frail>,
    pub(crate) log: Arc<Log>,
    pub(crate) domain: Domain,
    pub(crate) items: Items,
}

pub(crate) struct Shop {
    pub(crate) memory: Arc<MemoryStore>,
    pub(crate) closed: Arc<Mutex<BTreeSet<String>>>,
}

pub(crate) fn ids(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("d{i:04}")).collect()
}

impl Shop {
    /// Opens a shop with `n` items, each 1.
    pub(crate) async fn of(n: usize) -> Self {
        let world = Self { memory: Arc::new(MemoryStore::new()), closed: Arc::default() };
        world.process(Dies::Never).await.put_all(n, 1).await.expect("inserts");
        world
    }

    pub(crate) async fn process(&self, dies: Dies) -> Process {
        let frail = Arc::new(Frail {
            inner: self.memory.clone(),
            dies,
            dead: AtomicBool::new(false),
            closed: self.closed.clone(),
            held_back: AtomicBool::new(false),
        });
        let store = Arc::new(CountingStore::new(frail.clone()));
        let log = Arc::new(Log::default());
        let config = Config::default().with_janitor_interval(None).with_observer(Some(log.clone()));
        let domain = Domain::open_or_create(store.clone(), "shop", config).await.expect("opens");
        let items = domain.create_collection("items", None).await.expect("opens");
        Process { store, frail, log, domain, items }
    }

    /// Leaves the transaction of a process that dies at the commit.
    ///
    /// The transaction sets all items to 2 and, with `elsewhere`, inserts `other/x`.
    pub(crate) async fn left_by_the_dead(
        &self,
        n: usize,
        dies: Dies,
        elsewhere: bool,
    ) -> AttemptId {
        let dead = self.process(dies).await;
        let more: Option<Items> = match elsewhere {
            true => Some(dead.domain.create_collection("other", None).await.expect("opens")),
            false => None,
        };
        let tx = dead.domain.begin(&Options::default()).expect("begins");
        tx.get_many(&dead.items, ids(n)).await.expect("reads");
        for id in ids(n) {
            tx.put(&dead.items, id.as_str(), &Item { n: 2 }).expect("buffers");
        }
        if let Some(more) = &more {
            tx.insert(more, "x", &Item { n: 2 }).expect("buffers");
        }
        let tid = tx.tid();
        assert_eq!(tx.commit().await.is_ok(), dies == Dies::AfterCommit);
        tid
    }

    pub(crate) async fn stored(&self, key: &Key) -> Option<(Version, Source)> {
        match self.memory.get_many(std::slice::from_ref(key)).await.pop() {
            Some(Read::Found { version, source }) => Some((version, source)),
            _ => None,
        }
    }

    pub(crate) async fn write(&self, write: Write) {
        let outcomes = self.memory.write_many(&[write]).await;
        assert!(matches!(outcomes[..], [Outcome::Applied(_)]), "{outcomes:?}");
    }

    /// Writes a document as a plain client.
    pub(crate) async fn plainly(&self, key: &Key, source: &str) {
        let op = match self.stored(key).await {
            Some((version, _)) => WriteOp::Replace(source.into(), version),
            None => WriteOp::Create(source.into()),
        };
        self.write(Write::new(key.clone(), op)).await;
    }

    /// Whether the record of a transaction has this state.
    pub(crate) async fn is_in_state(&self, tid: AttemptId, state: State) -> bool {
        let (_, record) = self.stored(&Self::record_key(tid)).await.expect("a record");
        record.contains(&format!("\"state\":{}", serde_json::to_string(&state).expect("a state")))
    }

    pub(crate) fn record_key(tid: AttemptId) -> Key {
        Key::new(format!("txn-shop-{}", tid.day()), tid.to_string())
    }
}

impl Process {
    pub(crate) async fn put_all(&self, n: usize, value: i64) -> Result<(), Error> {
        let put = async |tx: &txn_core::Transaction| {
            tx.get_many(&self.items, ids(n)).await?;
            for id in ids(n) {
                tx.put(&self.items, id.as_str(), &Item { n: value })?;
            }
            Ok(())
        };
        let options = Options::default().with_wait_for(WaitFor::Apply);
        self.domain.run::<_, Error, _>(&options, put).await.map(|_| ())
    }

    pub(crate) async fn values(&self, n: usize) -> Vec<Option<i64>> {
        let read = self.domain.reader().verified().get_many(&self.items, ids(n)).await;
        read.expect("reads").into_iter().map(|item| item.map(|item| item.n)).collect()
    }

    /// Runs `work`, and returns its requests to the store.
    pub(crate) async fn cost<T>(&self, work: impl Future<Output = T>) -> (T, Counts) {
        let before = self.store.counts();
        let done = work.await;
        (done, self.store.counts().since(before))
    }
}
