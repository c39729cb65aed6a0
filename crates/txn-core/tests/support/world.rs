//! A process with a domain, collections and log.
//!
//! The process uses a store that the test scripts.

use std::sync::Arc;
use std::time::Duration;

use txn_core::store::{Key, MemoryStore, Store};
use txn_core::{
    AttemptId, Codec, Collection, Config, Domain, Error, Options, Receipt, Typed, WaitFor,
};
use txn_sim::{CountingStore, Scripted};

use super::items::{Item, config, drained, fresh_tid};
use super::log::Log;
use super::plain::Plain;

/// How a [`World`] begins.
pub(crate) struct Setup {
    memory: Arc<MemoryStore>,
    below: Arc<dyn Store>,
    config: Config,
    collections: &'static [&'static str],
}

impl Default for Setup {
    /// An empty store, and one collection `items`.
    fn default() -> Self {
        Self::on(Arc::default())
    }
}

impl Setup {
    /// Begins with the documents of another process.
    pub(crate) fn on(memory: Arc<MemoryStore>) -> Self {
        Self { below: memory.clone(), memory, config: config(), collections: &["items"] }
    }

    /// Puts a store between the process and its documents.
    pub(crate) fn below(mut self, below: Arc<dyn Store>) -> Self {
        self.below = below;
        self
    }

    /// Lets each read and write of documents take this long.
    pub(crate) fn slow(self, span: Duration) -> Self {
        let slow = Scripted::slow(self.below.clone(), span);
        self.below(Arc::new(slow))
    }

    pub(crate) fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Sets the names of the collections.
    pub(crate) fn collections(mut self, names: &'static [&'static str]) -> Self {
        self.collections = names;
        self
    }

    pub(crate) async fn open<C: Codec>(self) -> World<C> {
        let Self { memory, below, config, collections } = self;
        let counting = Arc::new(CountingStore::new(below));
        let store = Arc::new(Scripted::new(counting.clone()));
        let log = Arc::new(Log::default());
        let config = match config.observer() {
            Some(_) => config,
            None => config.with_observer(Some(log.clone())),
        };
        let domain = Domain::open_or_create(store.clone(), "shop", config).await.expect("opens");
        let mut opened = Vec::new();
        for name in collections {
            opened.push(domain.create_collection(name, None).await.expect("opens"));
        }
        let items = opened.remove(0);
        World { memory, counting, store, log, domain, items, others: opened }
    }
}

/// A process of the domain `shop`, its collections, and the layers below.
pub(crate) struct World<C: Codec = Typed<Item>> {
    /// The documents, without any layer.
    pub(crate) memory: Arc<MemoryStore>,
    /// Counts the calls that the script lets through.
    pub(crate) counting: Arc<CountingStore>,
    /// The store of the process.
    pub(crate) store: Arc<Scripted>,
    pub(crate) log: Arc<Log>,
    pub(crate) domain: Domain,
    /// The first collection.
    pub(crate) items: Collection<C>,
    /// The other collections.
    pub(crate) others: Vec<Collection<C>>,
}

impl World {
    /// Opens a domain with applied documents, each with `n` 1.
    pub(crate) async fn of(ids: &[&str]) -> Self {
        let world = Setup::default().open().await;
        world.put(&world.items, ids, &Item { n: 1 }).await.expect("writes");
        world
    }

    /// Reads an item, past all locks.
    pub(crate) async fn value(&self, id: &str) -> Option<i64> {
        self.domain.reader().verified().get(&self.items, id).await.expect("reads").map(|i| i.n)
    }
}

impl<C: Codec> World<C> {
    /// Reads and writes documents in one transaction, and waits for the apply.
    pub(crate) async fn put(
        &self,
        items: &Collection<C>,
        ids: &[&str],
        value: &C::Value,
    ) -> Result<Receipt, Error>
    where
        C::Value: Sync,
    {
        let options = Options::default().with_wait_for(WaitFor::Apply);
        let put = self.domain.run::<_, Error, _>(&options, async |tx| {
            tx.get_many(items, ids.iter().copied()).await?;
            ids.iter().try_for_each(|id| tx.put(items, *id, value))
        });
        put.await.map(|committed| committed.receipt)
    }

    /// Opens the domain in another process, on the store of this one.
    pub(crate) async fn process(&self, config: Config) -> Domain {
        Domain::open(self.store.clone(), "shop", config).await.expect("opens")
    }

    /// Leaves a lock as of a process that died before the commit.
    pub(crate) async fn leave_lock(&self, key: &Key) -> AttemptId {
        let tid = fresh_tid(&self.domain);
        self.memory.lock(key, tid).await;
        tid
    }

    /// Waits until no lock and no open record is left. Applies run after the acknowledgement.
    pub(crate) async fn drained(&self) {
        drained(&self.domain).await;
    }
}
