//! The barrier: what was acknowledged before it is applied behind it, and searches see it. In virtual time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use txn_core::store::{Layer, MemoryStore, Outcome, Read, Store, StoreError, Write};
use txn_core::{Collection, Config, Domain, Error, ErrorKind, Options, Raw};

type Result<T, E = StoreError> = std::result::Result<T, E>;

/// The store as one process has it: applies of commits can be kept away from it for a while. Notes which collections
/// were refreshed.
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

    /// Whether the write goes to a document of the application and takes its lock off.
    fn applies(write: &Write) -> bool {
        let lock = txn_core::fields::TRANSACTION_TID;
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

/// A process: its side of the store, its domain, its handle.
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

/// What a plain client sees of two documents: whether each has this text and no lock.
async fn plainly(store: &MemoryStore, items: &Collection<Raw>, text: &str) -> bool {
    let reads = store.get_many(&[items.key("a"), items.key("b")]).await;
    let inner = &text[1..text.len() - 1];
    reads.iter().all(|read| match read {
        Read::Found { source, .. } => {
            source.contains(inner) && !source.contains(txn_core::fields::TRANSACTION_TID)
        }
        _ => false,
    })
}

const NEW: &str = "{\"n\":2}";

#[tokio::test(start_paused = true)]
async fn one_s_own_commits_are_applied_and_refreshed_behind_it() {
    let store = Arc::new(MemoryStore::new());
    let process = Process::start(&store).await;
    let others: Collection<Raw> =
        process.domain.create_collection("others", None).await.expect("opens");
    process.side.shut.store(true, Ordering::Release);
    process.put(&["a", "b"], NEW).await;
    let wait = process.domain.barrier(Duration::from_secs(10));
    tokio::pin!(wait);
    let early = tokio::time::timeout(Duration::from_secs(5), &mut wait).await;
    assert!(early.is_err(), "it is committed and not applied: {early:?}");
    assert!(!plainly(&store, &process.items, NEW).await);
    process.side.refreshed.lock().clear();
    process.side.shut.store(false, Ordering::Release);
    wait.await.expect("passes").into_result().expect("applied");
    assert!(plainly(&store, &process.items, NEW).await);
    let refreshed = process.side.refreshed.lock();
    assert!([process.items.name(), others.name()].iter().all(|name| refreshed.contains(*name)));
}

#[tokio::test(start_paused = true)]
async fn commits_of_other_processes_are_waited_for_and_those_of_dead_ones_applied() {
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
async fn the_deadline_is_told_with_the_transaction_that_is_not_applied() {
    let store = Arc::new(MemoryStore::new());
    let process = Process::start(&store).await;
    process.side.shut.store(true, Ordering::Release);
    let tx = process.domain.begin(&Options::default()).expect("begins");
    let tid = tx.tid();
    tx.put(&process.items, "a", &Raw::new(NEW)).expect("takes it");
    tx.commit().await.expect("commits");
    let late = process.domain.barrier(Duration::from_secs(3)).await.expect_err("late");
    assert_eq!((late.kind(), late.tid()), (ErrorKind::Conflict, Some(tid)));
    let endless = process.domain.barrier(Duration::MAX).await.expect_err("refused");
    assert_eq!(endless.kind(), ErrorKind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_committed_holds_nobody_up() {
    let store = Arc::new(MemoryStore::new());
    let (busy, other) = (Process::start(&store).await, Process::start(&store).await);
    busy.put(&["a", "b"], "{\"n\":1}").await;
    let tx = busy.domain.begin(&Options::default().with_pessimistic(true)).expect("begins");
    tx.get(&busy.items, "a").await.expect("locks");
    // Its heartbeat has written a record by now.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!other.domain.inspect().await.expect("looks").open.is_empty());
    let report = other.domain.barrier(Duration::from_millis(1)).await.expect("passes");
    report.into_result().expect("nothing to wait for");
    tx.rollback().await;
}
