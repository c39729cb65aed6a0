//! Days that are dropped after a lock was read.
//!
//! The drop comes before the read of the holder's record.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Notify;
use txn_core::store::{Key, Layer, Outcome, Read, Refusal, RefusalKind, Store, Write};
use txn_core::{Config, Domain, Error, LockMode, Options};

use crate::support::Wall;
use crate::support::shop::ids;
use crate::support::{Dies, Item, Items, Process, SharedStore};

/// A store whose next read of a record waits for `goes_on`.
#[derive(Debug)]
struct Halting {
    inner: Arc<dyn Store>,
    halts: AtomicBool,
    halted: Notify,
    goes_on: Notify,
    /// Whether writes of documents are refused.
    blocked: bool,
}

impl Halting {
    async fn halt(&self, keys: &[Key]) {
        let is_record = keys.iter().any(|key| key.collection.starts_with("txn-shop-"));
        if is_record && self.halts.swap(false, Ordering::SeqCst) {
            self.halted.notify_one();
            self.goes_on.notified().await;
        }
    }
}

#[async_trait]
impl Layer for Halting {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        self.halt(keys).await;
        self.inner.get_many(keys).await
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        self.halt(keys).await;
        self.inner.read_primary(keys).await
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for write in writes {
            let is_item = write.op.changes() && *write.key.collection == *"items";
            outcomes.push(match self.blocked && is_item {
                true => Outcome::Invalid(Refusal {
                    kind: RefusalKind::Blocked,
                    reason: "index write blocked".to_owned(),
                }),
                false => self.inner.write_many(std::slice::from_ref(write)).await.swap_remove(0),
            });
        }
        outcomes
    }
}

/// Settings under which the owner's day is past the retention.
fn late() -> Config {
    let ahead = Wall::ahead(Duration::from_secs(9 * 24 * 3_600));
    Config::default().with_janitor_interval(None).with_clock(ahead)
}

/// The reading process.
struct Reading {
    store: Arc<Halting>,
    domain: Domain,
    items: Items,
}

async fn reading(w: &SharedStore, blocked: bool) -> Reading {
    let store = Arc::new(Halting {
        inner: w.memory.clone(),
        halts: AtomicBool::new(false),
        halted: Notify::new(),
        goes_on: Notify::new(),
        blocked,
    });
    let domain = Domain::open_or_create(store.clone(), "shop", late()).await.expect("opens");
    let items = domain.create_collection("items", None).await.expect("opens");
    Reading { store, domain, items }
}

/// Begins a transaction that locks two documents and sets both to 2.
///
/// From the commit on, the store refuses the owner's writes of documents.
async fn owner(w: &SharedStore) -> (Process, txn_core::Transaction) {
    let owner = w.process(Dies::HeldBackAfterCommit).await;
    let tx =
        owner.domain.begin(&Options::default().with_lock_mode(LockMode::AtRead)).expect("begins");
    for id in ids(2) {
        tx.get(&owner.items, id.as_str()).await.expect("locks");
        tx.put(&owner.items, id.as_str(), &Item { n: 2 }).expect("buffers");
    }
    (owner, tx)
}

/// Lets the owner apply and drops the day, during a halted read.
async fn drop_the_day(w: &SharedStore, store: &Halting, owner: &Process) {
    store.halted.notified().await;
    owner.held_back.store(false, Ordering::SeqCst);
    assert!(owner.domain.shutdown(Duration::from_secs(30)).await, "drained");
    let janitor = Domain::open_or_create(w.memory.clone(), "shop", late()).await.expect("opens");
    let report = janitor.admin().janitor_pass().await.expect("passes");
    assert!(report.partitions_dropped > 0 && report.is_clean(), "{report:?}");
    store.goes_on.notify_one();
}

#[tokio::test(start_paused = true)]
async fn verified_read_shows_a_commit_of_a_dropped_day() {
    for blocked in [false, true] {
        let w = SharedStore::of(2).await;
        let (owner, tx) = owner(&w).await;
        let reader = reading(&w, blocked).await;
        tx.commit().await.expect("commits");
        reader.store.halts.store(true, Ordering::SeqCst);
        let read = reader.domain.reader().verified();
        let read = read.get_many(&reader.items, ids(2));
        let (read, ()) = tokio::join!(read, drop_the_day(&w, &reader.store, &owner));
        let read: Vec<_> = read.expect("reads").into_iter().flatten().map(|item| item.n).collect();
        assert_eq!(read, [2, 2], "blocked: {blocked}");
    }
}

#[tokio::test(start_paused = true)]
async fn read_only_sees_a_whole_commit_of_a_dropped_day() {
    for blocked in [false, true] {
        let w = SharedStore::of(2).await;
        let (owner, tx) = owner(&w).await;
        let reader = reading(&w, blocked).await;
        let (store, items) = (&reader.store, &reader.items);
        let commit = Mutex::new(Some(tx));
        let read = reader.domain.transact::<_, Error, _>(async |tx| {
            let first = tx.get(items, "d0000").await?.map(|item| item.n);
            let committing = commit.lock().take();
            if let Some(committing) = committing {
                committing.commit().await.expect("commits");
                let second = tx.get(items, "d0001").await?.map(|item| item.n);
                assert_eq!((first, second), (Some(1), Some(2)), "a snapshot of two moments");
                store.halts.store(true, Ordering::SeqCst);
                return Ok((first, second));
            }
            Ok((first, tx.get(items, "d0001").await?.map(|item| item.n)))
        });
        let (read, ()) = tokio::join!(read, drop_the_day(&w, store, &owner));
        assert_eq!(read.expect("reads"), (Some(2), Some(2)), "blocked: {blocked}");
    }
}
