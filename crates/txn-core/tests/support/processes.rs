//! Processes on one memory store, each with a script of its own.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use txn_core::store::MemoryStore;
use txn_core::{AttemptId, Config, Domain, Error, Options, WaitFor};
use txn_sim::{Counts, Scripted};

use super::items::{Item, Items, config, drained, recorded};
use super::script::{Dies, die};
use super::world::{Setup, World};

/// A world with items, and a second process on them. Each item has `n` 1.
pub(crate) struct Shop {
    world: World,
    /// A process that no script affects.
    pub(crate) other: Domain,
}

impl Deref for Shop {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl Shop {
    pub(crate) async fn open(ids: &[&str]) -> Self {
        Self::open_with(ids, config()).await
    }

    pub(crate) async fn open_with(ids: &[&str], config: Config) -> Self {
        let first = World::of(ids).await;
        let world = Setup::on(first.memory.clone()).config(config).open().await;
        let shop = Self { world, other: first.domain };
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

/// A process that may die at its commit.
pub(crate) struct Process {
    world: World,
    /// Whether the store refuses writes of documents.
    pub(crate) held_back: Arc<AtomicBool>,
}

impl Deref for Process {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

pub(crate) fn ids(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("d{i:04}")).collect()
}

/// A memory store that several processes share.
pub(crate) struct SharedStore {
    pub(crate) memory: Arc<MemoryStore>,
    /// The store of all processes. The script of a process stands in front of this store.
    pub(crate) store: Arc<Scripted>,
}

impl SharedStore {
    /// Creates a store with `n` items, each 1.
    pub(crate) async fn of(n: usize) -> Self {
        let shared = Self::on(Arc::default());
        shared.process(Dies::Never).await.put_all(n, 1).await.expect("inserts");
        shared
    }

    /// Shares an existing store.
    pub(crate) fn on(memory: Arc<MemoryStore>) -> Self {
        Self { store: Arc::new(Scripted::new(memory.clone())), memory }
    }

    /// Starts a further process.
    pub(crate) async fn process(&self, dies: Dies) -> Process {
        let world: World = Setup::on(self.memory.clone()).below(self.store.clone()).open().await;
        let held_back = die(&world.store, dies);
        Process { world, held_back }
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
        let tx = dead.domain.begin(&recorded()).expect("begins");
        tx.get_many(&dead.items, ids(n)).await.expect("reads");
        for id in ids(n) {
            tx.put(&dead.items, id.as_str(), &Item { n: 2 }).expect("buffers");
        }
        if let Some(more) = &more {
            tx.insert(more, "x", &Item { n: 2 }).expect("buffers");
        }
        let tid = tx.tid().expect("has its own record");
        assert_eq!(tx.commit().await.is_ok(), dies == Dies::AfterCommit);
        tid
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
        let before = self.counting.counts();
        let done = work.await;
        (done, self.counting.counts().since(before))
    }
}
