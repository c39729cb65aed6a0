//! The barrier, in virtual time.
//!
//! After a barrier, every earlier acknowledged commit is applied and searchable.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use txn_core::store::{Layer, MemoryStore, Outcome, Read, Store, StoreError, Write};
use txn_core::{Collection, Config, Domain, Error, ErrorKind, LockMode, Options, Raw};

type Result<T, E = StoreError> = std::result::Result<T, E>;

/// The store as one process sees it. `shut` refuses the applies of this process.
#[derive(Debug)]
struct Side {
    store: Arc<MemoryStore>,
    shut: AtomicBool,
    refreshed: Mutex<BTreeSet<String>>,
}

impl Side {
    fn of(store: &Arc<MemoryStore>) -> Arc<Self> {
        let (shut, refreshed) = (AtomicBool::new(false), Mutex::default());
        Arc::new(Self { store: store.clone(), shut, refreshed })
    }

    /// Whether the write removes a lock from a document of the application.
    fn applies(write: &Write) -> bool {
        let lock = txn_core::store::fields::TRANSACTION_TID;
        write.op.changes()
            && !write.key.collection.starts_with("txn-")
            && !matches!(&write.op, txn_core::store::WriteOp::Create(source)
                | txn_core::store::WriteOp::Replace(source, _) if source.contains(lock))
    }
}

#[async_trait]
impl Layer for Side {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        if self.shut.load(Ordering::Acquire) && writes.iter().any(Self::applies) {
            return writes.iter().map(|_| Outcome::Rejected("shut".to_owned())).collect();
        }
        self.store.write_many(writes).await
    }

    async fn refresh(&self, collection: &str) -> Result<()> {
        self.refreshed.lock().insert(collection.to_owned());
        self.store.refresh(collection).await
    }
}

/// A process with its view of the store.
struct Process {
    side: Arc<Side>,
    domain: Domain,
    items: Collection<Raw>,
}

impl Process {
    async fn start(store: &Arc<MemoryStore>) -> Self {
        let side = Side::of(store);
        let config = Config::default().with_janitor_interval(None);
        let domain = Domain::open_or_create(side.clone(), "shop", config).await.expect("opens");
        let items = domain.create_collection("items", None).await.expect("opens");
        Self { side, domain, items }
    }

    async fn put(&self, ids: &[&str], text: &str) {
        let (items, text) = (&self.items, Raw::new(text));
        let put = self.domain.transact::<_, Error, _>(async |tx| {
            ids.iter().try_for_each(|id| tx.put(items, *id, &text))
        });
        put.await.expect("commits");
    }
}

/// Whether a plain client sees two documents with this text, unlocked.
async fn plainly(store: &MemoryStore, items: &Collection<Raw>, text: &str) -> bool {
    let reads = store.get_many(&[items.key("a"), items.key("b")]).await;
    let inner = &text[1..text.len() - 1];
    reads.iter().all(|read| match read {
        Read::Found { source, .. } => {
            source.contains(inner) && !source.contains(txn_core::store::fields::TRANSACTION_TID)
        }
        _ => false,
    })
}

const NEW: &str = "{\"n\":2}";

#[tokio::test(start_paused = true)]
async fn barrier_applies_and_refreshes_own_commits() {
    let store = Arc::new(MemoryStore::new());
    let process = Process::start(&store).await;
    let others: Collection<Raw> =
        process.domain.create_collection("others", None).await.expect("opens");
    process.side.shut.store(true, Ordering::Release);
    process.put(&["a", "b"], NEW).await;
    let wait = process.domain.barrier(Duration::from_secs(10));
    tokio::pin!(wait);
    let early = tokio::time::timeout(Duration::from_secs(5), &mut wait).await;
    assert!(early.is_err(), "committed but not applied: {early:?}");
    assert!(!plainly(&store, &process.items, NEW).await);
    process.side.refreshed.lock().clear();
    process.side.shut.store(false, Ordering::Release);
    wait.await.expect("passes").into_result().expect("applied");
    assert!(plainly(&store, &process.items, NEW).await);
    let refreshed = process.side.refreshed.lock();
    assert!([process.items.name(), others.name()].iter().all(|name| refreshed.contains(*name)));
}

#[tokio::test(start_paused = true)]
async fn barrier_rolls_a_dead_process_forward() {
    cov_mark::check!(foreign_commit_helped);
    let store = Arc::new(MemoryStore::new());
    let (dead, alive) = (Process::start(&store).await, Process::start(&store).await);
    dead.side.shut.store(true, Ordering::Release);
    dead.put(&["a", "b"], NEW).await;
    let report = alive.domain.barrier(Duration::from_secs(10)).await.expect("passes");
    report.into_result().expect("applied here");
    assert!(plainly(&store, &alive.items, NEW).await);
}

#[tokio::test(start_paused = true)]
async fn barrier_timeout_names_the_unapplied_transaction() {
    let store = Arc::new(MemoryStore::new());
    let process = Process::start(&store).await;
    process.side.shut.store(true, Ordering::Release);
    let tx = process.domain.begin(&Options::default()).expect("begins");
    let tid = tx.tid();
    tx.put(&process.items, "a", &Raw::new(NEW)).expect("buffers");
    tx.commit().await.expect("commits");
    let late = process.domain.barrier(Duration::from_secs(3)).await.expect_err("late");
    assert_eq!((late.kind(), late.tid()), (ErrorKind::Conflict, Some(tid)));
    let endless = process.domain.barrier(Duration::MAX).await.expect_err("refused");
    assert_eq!(endless.kind(), ErrorKind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn barrier_does_not_wait_for_uncommitted_locks() {
    let store = Arc::new(MemoryStore::new());
    let (busy, other) = (Process::start(&store).await, Process::start(&store).await);
    busy.put(&["a", "b"], "{\"n\":1}").await;
    let tx =
        busy.domain.begin(&Options::default().with_lock_mode(LockMode::AtRead)).expect("begins");
    tx.get(&busy.items, "a").await.expect("locks");
    // After 2 s the heartbeat has written a record.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!other.domain.admin().inspect().await.expect("inspects").open.is_empty());
    let report = other.domain.barrier(Duration::from_millis(1)).await.expect("passes");
    report.into_result().expect("no commit to wait for");
    tx.rollback().await;
}
