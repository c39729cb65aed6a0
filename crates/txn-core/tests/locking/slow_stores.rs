//! Stores that are slow, hang or lose an answer, in virtual time.
//!
//! Other transactions are not delayed, and the engine draws no wrong conclusion.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep};
use txn_core::clock::{Clock, SystemClock};
use txn_core::store::{Key, MemoryStore, Outcome, Read, Store, StoreError, StoreErrorKind};
use txn_core::{Collection, Domain, Error, LockMode, Options, Raw, Result};
use txn_sim::{Call, Fate, Scripted, Scroll, Step};

use crate::support::script::{is_apply, is_commit, is_lock};
use crate::support::{Setup, World, config};

const ONE: &str = r#"{"n":1}"#;
const TWO: &str = r#"{"n":2}"#;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn pessimistic() -> Options {
    Options::default().with_lock_mode(LockMode::AtRead)
}

/// Whether the shard of the documents `cold…` hangs.
#[derive(Debug, Default)]
struct Shard {
    reads: AtomicBool,
    writes: AtomicBool,
}

impl Shard {
    /// Lets requests with a hanging document take 10 s. Any other request takes 2 ms.
    fn step(&self, call: Call<'_>) -> Step {
        let hangs = match call {
            Call::GetMany(_) => &self.reads,
            Call::WriteMany(_) => &self.writes,
            _ => return Step::pass(),
        };
        if hangs.load(Ordering::SeqCst) && call.has(|key| key.id.starts_with("cold")) {
            let error = StoreError::new(StoreErrorKind::Unavailable, "no answer in time");
            return Step::delay(ms(10_000)).fail(error);
        }
        Step::delay(ms(2))
    }
}

/// Two processes, one on a store with a hanging shard.
struct TwoProcesses {
    shard: Arc<Shard>,
    domain: Domain,
    other: Domain,
    items: Collection<Raw>,
}

impl TwoProcesses {
    async fn open() -> Self {
        let World { memory, domain: other, items, .. } = Setup::default().open::<Raw>().await;
        let (store, shard) = (Scripted::new(memory.clone()), Arc::new(Shard::default()));
        let of_calls = shard.clone();
        store.before(move |call| of_calls.step(call));
        let setup = Setup::on(memory).below(Arc::new(store));
        let shared = setup.config(config().with_request_batching(Some(true)));
        let World { domain, .. } = shared.open::<Raw>().await;
        let filled = other.transact::<_, Error, _>(async |tx| {
            for i in 0..100 {
                tx.put(&items, format!("cold-{i}"), &Raw::new(ONE))?;
            }
            tx.put(&items, "warm", &Raw::new(ONE))?;
            tx.put(&items, "warm too", &Raw::new(ONE))
        });
        filled.await.expect("the store works");
        sleep(ms(500)).await;
        Self { shard, domain, other, items }
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
    let TwoProcesses { shard, domain, items, .. } = TwoProcesses::open().await;
    shard.reads.store(true, Ordering::SeqCst);
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
    let TwoProcesses { shard, domain, other, items } = TwoProcesses::open().await;
    shard.writes.store(true, Ordering::SeqCst);
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
    let TwoProcesses { shard, domain, items, .. } = TwoProcesses::open().await;
    shard.writes.store(true, Ordering::SeqCst);
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

#[test]
fn idle_runtime_carries_no_request_of_another() {
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let (one, other) = (runtime(), runtime());
    let (domain, items) = one.block_on(async {
        let shared = config().with_request_batching(Some(true));
        let World { domain, items, .. } =
            Setup::default().slow(ms(80)).config(shared).open::<Raw>().await;
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

/// Runs `hook` before the first lock of `a`.
fn before_the_lock(store: &Scripted, hook: BoxFuture<'static, ()>) {
    let hook = Mutex::new(Some(hook));
    store.before(move |call| match call.writes(|write| is_lock(write) && &*write.key.id == "a") {
        true => hook.lock().take().map_or_else(Step::pass, Step::wait),
        false => Step::pass(),
    });
}

#[tokio::test(start_paused = true)]
async fn dropped_read_with_a_lost_lock_delays_no_commit() {
    cov_mark::check!(commit_beside_an_uncertain_lock);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let config = || config().with_clock(clock.clone());
    let World { memory, domain: other, items, .. } =
        Setup::default().config(config()).open::<Raw>().await;
    let filled = other.transact::<_, Error, _>(async |tx| {
        tx.put(&items, "a", &Raw::new(ONE))?;
        tx.put(&items, "b", &Raw::new(ONE))
    });
    filled.await.unwrap();
    sleep(ms(500)).await;
    let World { store, domain, .. } = Setup::on(memory).config(config()).open::<Raw>().await;
    let older = Arc::new(other.begin(&pessimistic()).unwrap());
    sleep(ms(20)).await;
    let (holder, of) = (older.clone(), items.clone());
    let hook = async move {
        holder.get(&of, "a").await.unwrap();
    };
    before_the_lock(&store, Box::pin(hook));
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

/// Leaves seven transactions of two documents each committed and not applied.
async fn left_behind() -> (Arc<MemoryStore>, Arc<Scroll>, Vec<Key>) {
    let setup = Setup::default().config(config().with_timeout(ms(200)));
    let World { memory, store, domain: dead, items, .. } = setup.open::<Raw>().await;
    store.play(|write| match is_apply(write) {
        true => Fate::RefuseWith(Outcome::Rejected("shut".to_owned())),
        false => Fate::Pass,
    });
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
    let (domain, other, items) = runtime.block_on(async {
        let World { memory, domain, items, .. } = Setup::default().open::<Raw>().await;
        let World { domain: other, .. } = Setup::on(memory).open::<Raw>().await;
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

/// Lets the next read of a record take longer than the lease.
fn slow_record(store: &Scripted) {
    let once = AtomicBool::new(true);
    store.before(move |call| {
        let is_read = matches!(call, Call::GetMany(_));
        let is_record = is_read && call.has(|key| key.collection.starts_with("txn-shop-"));
        match is_record && once.swap(false, Ordering::SeqCst) {
            true => Step::delay(ms(1_100)),
            false => Step::pass(),
        }
    });
}

#[tokio::test(start_paused = true)]
async fn slow_read_of_a_record_does_not_expire_the_lease() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let config = || config().with_clock(clock.clone());
    let World { memory, domain: owner, items, .. } =
        Setup::default().config(config()).open::<Raw>().await;
    rewrite(&owner, &items, "a").await.unwrap();
    sleep(ms(500)).await;
    let World { store, domain: rival, .. } = Setup::on(memory).config(config()).open::<Raw>().await;
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
        slow_record(&store);
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
    let World { memory, domain: other, items, .. } = Setup::default().open::<Raw>().await;
    let setup = Setup::on(memory).config(config().with_timeout(ms(3_000)));
    let World { store, domain, .. } = setup.open::<Raw>().await;
    // The store is overloaded.
    store.play(|write| match is_commit(write) {
        true => Fate::RefuseWith(Outcome::Rejected("429".to_owned())),
        false => Fate::Pass,
    });
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
