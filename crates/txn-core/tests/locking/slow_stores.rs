//! Stores that are slow, hang or lose an answer, in virtual time.
//!
//! Other transactions are not delayed, and the engine draws no wrong conclusion.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep};
use txn_core::clock::{Clock, SystemClock};
use txn_core::store::{
    Key, Layer, MemoryStore, Outcome, Read, Store, StoreError, StoreErrorKind, Write, WriteOp,
};
use txn_core::{Collection, Domain, Error, LockMode, Options, Raw, Result};
use txn_sim::Scroll;

use crate::support::scripted::{is_commit, is_lock};
use crate::support::{Fate, Scripted, config};

const ONE: &str = r#"{"n":1}"#;
const TWO: &str = r#"{"n":2}"#;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn pessimistic() -> Options {
    Options::default().with_lock_mode(LockMode::AtRead)
}

/// A store with one hanging shard.
///
/// A request with a document `cold…` takes 10 s. Every other request takes 2 ms.
#[derive(Debug, Default)]
struct HungShard {
    inner: Arc<MemoryStore>,
    reads: AtomicBool,
    writes: AtomicBool,
}

impl HungShard {
    async fn hangs<'a>(&self, kind: &AtomicBool, mut keys: impl Iterator<Item = &'a Key>) -> bool {
        let hangs = keys.any(|key| key.id.starts_with("cold")) && kind.load(Ordering::SeqCst);
        sleep(if hangs { ms(10_000) } else { ms(2) }).await;
        hangs
    }
}

#[async_trait]
impl Layer for HungShard {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        if self.hangs(&self.reads, keys.iter()).await {
            let late = || StoreError::new(StoreErrorKind::Unavailable, "no answer in time");
            return keys.iter().map(|_| Read::Unavailable(late())).collect();
        }
        self.inner.get_many(keys).await
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        if self.hangs(&self.writes, writes.iter().map(|write| &write.key)).await {
            return writes.iter().map(|_| Outcome::Unknown("no answer in time".into())).collect();
        }
        self.inner.write_many(writes).await
    }
}

/// Two processes, one on a store with a hanging shard.
struct Shop {
    store: Arc<HungShard>,
    domain: Domain,
    other: Domain,
    items: Collection<Raw>,
}

impl Shop {
    async fn open() -> Self {
        let store = Arc::new(HungShard::default());
        let other = Domain::open_or_create(store.inner.clone(), "shop", config())
            .await
            .expect("the store works");
        let items: Collection<Raw> =
            other.create_collection("items", None).await.expect("the store works");
        let shared = config().with_request_batching(Some(true));
        let domain =
            Domain::open_or_create(store.clone(), "shop", shared).await.expect("the store works");
        let _: Collection<Raw> = domain.collection("items").await.expect("the store works");
        let filled = other.transact::<_, Error, _>(async |tx| {
            for i in 0..100 {
                tx.put(&items, format!("cold-{i}"), &Raw::new(ONE))?;
            }
            tx.put(&items, "warm", &Raw::new(ONE))?;
            tx.put(&items, "warm too", &Raw::new(ONE))
        });
        filled.await.expect("the store works");
        sleep(ms(500)).await;
        Self { store, domain, other, items }
    }
}

/// Reads and writes a document, with the lock taken by the read.
async fn rewrite(domain: &Domain, items: &Collection<Raw>, id: &str) -> Result<u32> {
    let options = pessimistic();
    let committed = domain.run::<_, Error, _>(&options, async |tx| {
        tx.get(items, id).await?;
        tx.put(items, id, &Raw::new(TWO))
    });
    committed.await.map(|committed| committed.receipt.attempts)
}

#[tokio::test(start_paused = true)]
async fn read_is_served_while_other_requests_hang() {
    let Shop { store, domain, items, .. } = Shop::open().await;
    store.reads.store(true, Ordering::SeqCst);
    for i in 0..4 {
        let (domain, items) = (domain.clone(), items.clone());
        tokio::spawn(async move { domain.reader().get(&items, format!("cold-{i}")).await });
        sleep(ms(10)).await;
    }
    let begun = Instant::now();
    domain.reader().get(&items, "warm").await.unwrap();
    assert!(begun.elapsed() < ms(1_000), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn hanging_shard_delays_no_heartbeat() {
    let Shop { store, domain, other, items } = Shop::open().await;
    store.writes.store(true, Ordering::SeqCst);
    let options = pessimistic();
    let long = domain.run::<_, Error, _>(&options, async |tx| {
        tx.get(&items, "warm").await?;
        sleep(ms(3_000)).await;
        tx.put(&items, "warm", &Raw::new(TWO))
    });
    let cold = async {
        for i in 0..60 {
            sleep(ms(10)).await;
            let (domain, items) = (domain.clone(), items.clone());
            tokio::spawn(async move { rewrite(&domain, &items, &format!("cold-{i}")).await });
        }
    };
    let rival = async {
        sleep(ms(200)).await;
        rewrite(&other, &items, "warm").await
    };
    let (long, (), rival) = tokio::join!(long, cold, rival);
    assert_eq!(long.unwrap().receipt.attempts, 1, "the heartbeat continued");
    rival.unwrap();
}

#[tokio::test(start_paused = true)]
async fn large_hanging_requests_leave_permits_free() {
    let Shop { store, domain, items, .. } = Shop::open().await;
    store.writes.store(true, Ordering::SeqCst);
    let large = Arc::new(format!(r#"{{"t":"{}"}}"#, "x".repeat(120_000)));
    let put = |id: String| {
        let (domain, items, large) = (domain.clone(), items.clone(), large.clone());
        tokio::spawn(async move {
            let put = domain.transact::<_, Error, _>(async |tx| {
                tx.get(&items, "warm too").await?;
                tx.put(&items, id.as_str(), &Raw::new(&**large))
            });
            put.await
        })
    };
    for i in 0..4 {
        put(format!("cold-{i}"));
    }
    sleep(ms(1_000)).await;
    let begun = Instant::now();
    put("warm".to_owned()).await.unwrap().unwrap();
    assert!(begun.elapsed() < ms(1_000), "{:?}", begun.elapsed());
}

/// A store whose reads take 80 ms of real time.
#[derive(Debug, Default)]
struct Slow(MemoryStore);

#[async_trait]
impl Layer for Slow {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        sleep(ms(80)).await;
        self.0.get_many(keys).await
    }
}

#[test]
fn idle_runtime_carries_no_request_of_another() {
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let (one, other) = (runtime(), runtime());
    let (domain, items) = one.block_on(async {
        let shared = config().with_request_batching(Some(true));
        let domain =
            Domain::open_or_create(Arc::new(Slow::default()), "shop", shared).await.unwrap();
        let items: Collection<Raw> = domain.create_collection("items", None).await.unwrap();
        (domain, items)
    });
    let read = |i: u64| {
        let (domain, items) = (domain.clone(), items.clone());
        async move {
            sleep(ms(5 * i)).await;
            domain.reader().get(&items, format!("{i}")).await
        }
    };
    let later = read(10);
    let second = std::thread::spawn(move || other.block_on(later));
    // The first runtime takes all permits for requests. Then the runtime is idle, but lives on.
    one.block_on(join_all((0..4).map(read)));
    assert!(second.join().unwrap().unwrap().is_none());
    drop(one);
}

/// A store that runs a hook before the first lock of `a`.
struct BeforeTheLock {
    inner: Arc<MemoryStore>,
    hook: Mutex<Option<BoxFuture<'static, ()>>>,
}

impl std::fmt::Debug for BeforeTheLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BeforeTheLock")
    }
}

#[async_trait]
impl Layer for BeforeTheLock {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let locks = |write: &Write| match &write.op {
            WriteOp::Replace(source, _) => {
                &*write.key.id == "a" && source.contains("transaction_tid")
            }
            _ => false,
        };
        let hook = if writes.iter().any(locks) { self.hook.lock().take() } else { None };
        if let Some(hook) = hook {
            hook.await;
        }
        self.inner.write_many(writes).await
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_read_with_a_lost_lock_delays_no_commit() {
    cov_mark::check!(commit_beside_an_uncertain_lock);
    let memory = Arc::new(MemoryStore::new());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let config = || config().with_clock(clock.clone());
    let other = Domain::open_or_create(memory.clone(), "shop", config()).await.unwrap();
    let items: Collection<Raw> = other.create_collection("items", None).await.unwrap();
    let filled = other.transact::<_, Error, _>(async |tx| {
        tx.put(&items, "a", &Raw::new(ONE))?;
        tx.put(&items, "b", &Raw::new(ONE))
    });
    filled.await.unwrap();
    sleep(ms(500)).await;
    let store = Arc::new(BeforeTheLock { inner: memory, hook: Mutex::new(None) });
    let domain = Domain::open_or_create(store.clone(), "shop", config()).await.unwrap();
    let older = Arc::new(other.begin(&pessimistic()).unwrap());
    sleep(ms(20)).await;
    let (holder, of) = (older.clone(), items.clone());
    *store.hook.lock() = Some(Box::pin(async move {
        holder.get(&of, "a").await.unwrap();
    }));
    let begun = Instant::now();
    let options = pessimistic();
    let done = domain.run::<_, Error, _>(&options, async |tx| {
        // An older transaction holds the document now, for a long time.
        let _ = tokio::time::timeout(ms(50), tx.get(&items, "a")).await;
        tx.get(&items, "b").await?;
        tx.put(&items, "b", &Raw::new(TWO))
    });
    done.await.unwrap();
    assert!(begun.elapsed() < ms(1_000), "{:?}", begun.elapsed());
    drop(older);
}

/// Whether a write applies an item: the write removes the lock.
fn is_apply(write: &Write) -> bool {
    &*write.key.collection == "items" && !is_lock(write) && write.op.changes()
}

/// Leaves seven transactions of two documents each committed and not applied.
async fn left_behind() -> (Arc<MemoryStore>, Arc<Scroll>, Vec<Key>) {
    let memory = Arc::new(MemoryStore::new());
    let config = config().with_timeout(ms(200));
    let store = Scripted::new(memory.clone());
    store.play(|write| match is_apply(write) {
        true => Fate::RefuseWith(Outcome::Rejected("shut".to_owned())),
        false => Fate::Pass,
    });
    let dead =
        Domain::open_or_create(Arc::new(store), "shop", config).await.expect("the store works");
    let items: Collection<Raw> =
        dead.create_collection("items", None).await.expect("the store works");
    let mut keys = Vec::new();
    for i in 0..7 {
        let pair = [format!("{i}-left"), format!("{i}-right")];
        keys.extend(pair.iter().map(|id| Key::new("items", id.as_str())));
        let put = dead.transact::<_, Error, _>(async |tx| {
            pair.iter().try_for_each(|id| tx.put(&items, id.as_str(), &Raw::new(TWO)))
        });
        put.await.expect("the store works");
    }
    dead.shutdown(ms(5_000)).await;
    (memory.clone(), Arc::new(Scroll::new(memory)), keys)
}

#[tokio::test(start_paused = true)]
async fn barrier_misses_nothing_after_a_lost_page() {
    let (memory, store, keys) = left_behind().await;
    let domain = Domain::open(store.clone(), "shop", config()).await.unwrap();
    store.lose(1);
    domain.barrier(ms(20_000)).await.unwrap().into_result().unwrap();
    assert_eq!(store.left_to_lose(), 0, "a page was lost");
    for read in memory.get_many(&keys).await {
        assert!(matches!(&read, Read::Found { source, .. } if source.contains(r#""n":2"#)));
    }
}

#[tokio::test(start_paused = true)]
async fn inspection_counts_once_after_a_lost_page() {
    let (_, store, keys) = left_behind().await;
    let domain = Domain::open(store.clone(), "shop", config()).await.unwrap();
    store.lose(1);
    let report = domain.admin().inspect().await.unwrap();
    assert_eq!(store.left_to_lose(), 0, "a page was lost");
    assert_eq!((report.locked.len(), report.open.len()), (keys.len(), 7), "{report:?}");
}

#[test]
fn handle_dropped_outside_a_runtime_releases_locks() {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let memory = Arc::new(MemoryStore::new());
    let (domain, other, items) = runtime.block_on(async {
        let domain = Domain::open_or_create(memory.clone(), "shop", config()).await.unwrap();
        let items: Collection<Raw> = domain.create_collection("items", None).await.unwrap();
        let other = Domain::open_or_create(memory, "shop", config()).await.unwrap();
        rewrite(&domain, &items, "a").await.unwrap();
        sleep(ms(500)).await;
        (domain, other, items)
    });
    let tx = domain.begin(&pessimistic()).unwrap();
    runtime.block_on(tx.get(&items, "a")).unwrap();
    drop(tx);
    runtime.block_on(async {
        sleep(ms(100)).await;
        assert!(other.admin().inspect().await.unwrap().is_clean());
        rewrite(&other, &items, "a").await.unwrap();
    });
}

/// A store whose next read of a record exceeds the lease.
#[derive(Debug)]
struct SlowRecord {
    inner: Arc<MemoryStore>,
    once: AtomicBool,
}

#[async_trait]
impl Layer for SlowRecord {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        let is_record = keys.iter().any(|key| key.collection.starts_with("txn-shop-"));
        if is_record && self.once.swap(false, Ordering::SeqCst) {
            sleep(ms(1_100)).await;
        }
        self.inner.get_many(keys).await
    }
}

#[tokio::test(start_paused = true)]
async fn slow_read_of_a_record_does_not_expire_the_lease() {
    let memory = Arc::new(MemoryStore::new());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let config = || config().with_clock(clock.clone());
    let owner = Domain::open_or_create(memory.clone(), "shop", config()).await.unwrap();
    let items: Collection<Raw> = owner.create_collection("items", None).await.unwrap();
    rewrite(&owner, &items, "a").await.unwrap();
    sleep(ms(500)).await;
    let store = Arc::new(SlowRecord { inner: memory, once: AtomicBool::new(false) });
    let rival = Domain::open_or_create(store.clone(), "shop", config()).await.unwrap();
    let runs = AtomicUsize::new(0);
    let options = pessimistic();
    let old = owner.run::<_, Error, _>(&options, async |tx| {
        runs.fetch_add(1, Ordering::SeqCst);
        tx.get(&items, "a").await?;
        sleep(ms(4_000)).await;
        tx.put(&items, "a", &Raw::new(ONE))
    });
    let young = async {
        sleep(ms(600)).await;
        store.once.store(true, Ordering::SeqCst);
        rewrite(&rival, &items, "a").await
    };
    let (old, young) = tokio::join!(old, young);
    assert_eq!(old.unwrap().receipt.attempts, 1, "the heartbeat continued");
    young.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn refused_commit_leaves_no_open_record() {
    cov_mark::check!(commit_refused_for_certain);
    let memory = Arc::new(MemoryStore::new());
    let other = Domain::open_or_create(memory.clone(), "shop", config()).await.unwrap();
    let items: Collection<Raw> = other.create_collection("items", None).await.unwrap();
    let config = config().with_timeout(ms(3_000));
    let store = Scripted::new(memory);
    // The store is overloaded.
    store.play(|write| match is_commit(write) {
        true => Fate::RefuseWith(Outcome::Rejected("429".to_owned())),
        false => Fate::Pass,
    });
    let domain = Domain::open_or_create(Arc::new(store), "shop", config).await.unwrap();
    let options = pessimistic();
    let refused = domain.run::<(), Error, _>(&options, async |tx| {
        tx.get_many(&items, ["a", "b"]).await?;
        // The heartbeat writes a record in this time.
        sleep(ms(1_000)).await;
        tx.put(&items, "a", &Raw::new(ONE))
    });
    let error = refused.await.unwrap_err();
    assert_eq!(error.kind(), txn_core::ErrorKind::Unavailable, "{error}");
    sleep(ms(2_000)).await;
    assert!(other.admin().inspect().await.unwrap().is_clean());
}

#[test]
fn metadata_stays_out_of_logs() {
    let options = Options::default().with_metadata(Some(r#"{"card":"4929"}"#.to_owned()));
    assert!(!format!("{options:?}").contains("4929"), "{options:?}");
}
