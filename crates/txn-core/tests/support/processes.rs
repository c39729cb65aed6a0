//! A shop: processes with scripted stores on one memory store.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use txn_core::store::{Key, MemoryStore, Outcome, Read, Source, Store, Version, Write, WriteOp};
use txn_core::{AttemptId, Config, Domain, Error, Options, WaitFor, record::State};
use txn_sim::{CountingStore, Counts};

use super::items::{Item, Items, config, drained};
use super::log::Log;
use super::scripted::{Closed, Dies, Scripted};

/// A shop with some items, each with `n` 1.
pub(crate) struct Shop {
    pub(crate) memory: Arc<MemoryStore>,
    pub(crate) store: Arc<Scripted>,
    /// The process with the scripted store.
    pub(crate) domain: Domain,
    pub(crate) items: Items,
    /// Another process, on the plain memory store.
    pub(crate) other: Domain,
}

impl Shop {
    pub(crate) async fn open(ids: &[&str]) -> Self {
        Self::open_with(ids, config()).await
    }

    pub(crate) async fn open_with(ids: &[&str], config: Config) -> Self {
        let memory = Arc::new(MemoryStore::new());
        let other =
            Domain::open_or_create(memory.clone(), "shop", self::config()).await.expect("opens");
        let items: Items = other.create_collection("items", None).await.expect("opens");
        let fill = async |tx: &txn_core::Transaction| {
            ids.iter().try_for_each(|id| tx.insert(&items, *id, &Item { n: 1 }))
        };
        other.transact::<_, Error, _>(fill).await.expect("inserts");
        let store = Arc::new(Scripted::new(memory.clone()));
        let domain = Domain::open_or_create(store.clone(), "shop", config).await.expect("opens");
        let shop = Self { memory, store, domain, items, other };
        shop.drained().await;
        shop
    }

    /// Waits until no lock and no open record is left. Applies run after the acknowledgement.
    pub(crate) async fn drained(&self) {
        drained(&self.other).await;
    }

    /// Reads an item in the other process.
    pub(crate) async fn value(&self, id: &str) -> Option<i64> {
        self.other.reader().verified().get(&self.items, id).await.expect("reads").map(|i| i.n)
    }

    /// Reads and sets items in one transaction.
    pub(crate) async fn set(&self, domain: &Domain, ids: &[&str], n: i64) -> Result<(), Error> {
        let items = &self.items;
        domain
            .transact(async |tx| {
                tx.get_many(items, ids.iter().copied()).await?;
                ids.iter().try_for_each(|id| tx.put(items, *id, &Item { n }))
            })
            .await
    }
}

/// A process with a domain and items, on a counting store.
pub(crate) struct Process {
    pub(crate) store: Arc<CountingStore>,
    /// Whether writes of documents are refused.
    pub(crate) held_back: Arc<AtomicBool>,
    pub(crate) log: Arc<Log>,
    pub(crate) domain: Domain,
    pub(crate) items: Items,
}

pub(crate) fn ids(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("d{i:04}")).collect()
}

/// A memory store that the processes of a shop share.
pub(crate) struct SharedStore {
    pub(crate) memory: Arc<MemoryStore>,
    pub(crate) closed: Closed,
}

impl SharedStore {
    /// Creates a store with `n` items, each 1.
    pub(crate) async fn of(n: usize) -> Self {
        let shared = Self { memory: Arc::new(MemoryStore::new()), closed: Closed::default() };
        shared.process(Dies::Never).await.put_all(n, 1).await.expect("inserts");
        shared
    }

    /// Starts a further process.
    pub(crate) async fn process(&self, dies: Dies) -> Process {
        let scripted = Scripted::with_closed(self.memory.clone(), self.closed.clone());
        let held_back = scripted.die(dies);
        let store = Arc::new(CountingStore::new(Arc::new(scripted)));
        let log = Arc::new(Log::default());
        let config = config().with_observer(Some(log.clone()));
        let domain = Domain::open_or_create(store.clone(), "shop", config).await.expect("opens");
        let items = domain.create_collection("items", None).await.expect("opens");
        Process { store, held_back, log, domain, items }
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
