//! A shop on a memory store with scripted answers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::support::drained;
pub(crate) use crate::support::{Item, Items, config};
use async_trait::async_trait;
use parking_lot::Mutex;
use txn_core::store::{
    Key, Layer, MemoryStore, Outcome, Read, Store, StoreError, StoreErrorKind, Write, WriteOp,
};
use txn_core::{Config, Domain, Error};

/// The effect and the answer of one write.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    /// Carries the write out.
    Pass,
    /// Carries the write out, and returns this answer instead.
    AnswerWith(Outcome),
    /// Returns this answer without carrying the write out.
    RefuseWith(Outcome),
    /// Carries the write out, and never answers.
    Hang,
    /// Carries the write out, and panics.
    Panic,
}

type Script = Box<dyn Fn(&Write) -> Fate + Send + Sync>;

/// Forwards calls to another store, with the answers of a script.
pub(crate) struct Scripted {
    inner: Arc<dyn Store>,
    script: Mutex<Arc<Script>>,
    refresh: Mutex<Fate>,
    down: AtomicBool,
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").finish_non_exhaustive()
    }
}

impl Scripted {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Self {
        let pass: Script = Box::new(|_| Fate::Pass);
        Self {
            inner,
            script: Mutex::new(Arc::new(pass)),
            refresh: Mutex::new(Fate::Pass),
            down: AtomicBool::new(false),
        }
    }

    /// Replaces the script for writes.
    pub(crate) fn play(&self, script: impl Fn(&Write) -> Fate + Send + Sync + 'static) {
        *self.script.lock() = Arc::new(Box::new(script));
    }

    /// Sets the fate of refreshes.
    pub(crate) fn set_refresh(&self, fate: Fate) {
        *self.refresh.lock() = fate;
    }

    /// Makes the store unavailable, or available again.
    pub(crate) fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    async fn read(&self, keys: &[Key], read: impl Future<Output = Vec<Read>> + Send) -> Vec<Read> {
        match self.up() {
            Ok(()) => read.await,
            Err(error) => keys.iter().map(|_| Read::Unavailable(error.clone())).collect(),
        }
    }

    fn up(&self) -> Result<(), StoreError> {
        match self.down.load(Ordering::SeqCst) {
            true => Err(StoreError::new(StoreErrorKind::Unavailable, "down")),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Layer for Scripted {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn around<V: Send>(
        &self,
        call: impl Future<Output = Result<V, StoreError>> + Send,
    ) -> Result<V, StoreError> {
        self.up()?;
        call.await
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        self.read(keys, self.inner.get_many(keys)).await
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        self.read(keys, self.inner.read_primary(keys)).await
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(writes.len());
        for write in writes {
            if self.up().is_err() {
                outcomes.push(Outcome::Rejected("down".to_owned()));
                continue;
            }
            let script = self.script.lock().clone();
            let fate = script(write);
            if let Fate::RefuseWith(outcome) = fate {
                outcomes.push(outcome);
                continue;
            }
            let mut carried_out = self.inner.write_many(std::slice::from_ref(write)).await;
            outcomes.push(match fate {
                Fate::AnswerWith(outcome) => outcome,
                Fate::Hang => std::future::pending().await,
                Fate::Panic => panic!("the store panics"),
                Fate::Pass | Fate::RefuseWith(_) => carried_out.swap_remove(0),
            });
        }
        outcomes
    }

    async fn refresh(&self, collection: &str) -> Result<(), StoreError> {
        self.up()?;
        let fate = self.refresh.lock().clone();
        match fate {
            Fate::Panic => panic!("the store panics"),
            Fate::Hang => std::future::pending().await,
            _ => self.inner.refresh(collection).await,
        }
    }
}

/// Carries out but refuses the first matching write, and goes down.
pub(crate) fn refuse_and_go_down(
    store: &Arc<Scripted>,
    refusal: Outcome,
    which: impl Fn(&Write) -> bool + Send + Sync + 'static,
) {
    let (weak, met) = (Arc::downgrade(store), AtomicUsize::new(0));
    store.play(move |write| {
        if !which(write) || met.fetch_add(1, Ordering::SeqCst) > 0 {
            return Fate::Pass;
        }
        if let Some(store) = weak.upgrade() {
            store.set_down(true);
        }
        Fate::AnswerWith(refusal.clone())
    });
}

/// Whether a write commits a record.
pub(crate) fn is_commit(write: &Write) -> bool {
    write.require_alias && writes(write, "\"state\":\"committed\"")
}

/// Whether a write takes a lock.
pub(crate) fn is_lock(write: &Write) -> bool {
    !write.require_alias && writes(write, "\"transaction_tid\"")
}

/// Whether a write contains this text.
pub(crate) fn writes(write: &Write, text: &str) -> bool {
    matches!(&write.op, WriteOp::Create(source) | WriteOp::Replace(source, _) if source.contains(text))
}

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
