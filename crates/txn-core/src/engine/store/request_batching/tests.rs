//! Tests of request batching, on a store whose requests a test releases.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use txn_store::conformance::{self, Options};

use super::*;
use crate::clock::SystemClock;
use txn_store::{CollectionSpec, MemoryStore, Role, StoreErrorKind, Version, WriteOp};

/// Notes each request, and carries it out once the test releases it.
#[derive(Debug)]
struct Gate {
    inner: MemoryStore,
    open: Semaphore,
    under_way: AtomicUsize,
    most: AtomicUsize,
    requests: Mutex<Vec<Vec<String>>>,
}

impl Gate {
    /// The id `panic` panics, `hang` never answers, and `short` ends the answer.
    async fn pass(&self, ids: Vec<String>) -> Option<usize> {
        let has = |name: &str| ids.iter().position(|id| id == name);
        let (panics, hangs, short) = (has("panic"), has("hang"), has("short"));
        self.most.fetch_max(1 + self.under_way.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
        self.requests.lock().push(ids);
        if hangs.is_some() {
            std::future::pending::<()>().await;
        }
        self.open.acquire().await.unwrap().forget();
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        assert!(panics.is_none(), "the store panics");
        short
    }
}

#[async_trait]
impl Layer for Gate {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        let short = self.pass(keys.iter().map(|key| key.id.to_string()).collect()).await;
        let mut reads = self.inner.get_many(keys).await;
        reads.truncate(short.unwrap_or(reads.len()));
        reads
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let short = self.pass(writes.iter().map(|write| write.key.id.to_string()).collect()).await;
        let mut outcomes = self.inner.write_many(writes).await;
        outcomes.truncate(short.unwrap_or(outcomes.len()));
        outcomes
    }
}

struct Fixture {
    gate: Arc<Gate>,
    layer: Arc<RequestBatching>,
    tasks: TaskTracker,
}

pub(super) const BOUNDS: Bounds = Bounds {
    requests: 1,
    spare_requests: 0,
    large_requests: 1,
    operations: 8,
    bytes: 100_000,
    queued: 1_000,
    queued_bytes: 1 << 20,
};

fn shared(
    store: Arc<dyn Store>,
    tasks: &TaskTracker,
    clock: &Arc<dyn Clock>,
    bounds: Bounds,
) -> RequestBatching {
    shared_in(None, store, tasks, clock, bounds)
}

fn shared_in(
    runtime: Option<Handle>,
    store: Arc<dyn Store>,
    tasks: &TaskTracker,
    clock: &Arc<dyn Clock>,
    bounds: Bounds,
) -> RequestBatching {
    let (tasks, clock) = (tasks.clone(), clock.clone());
    let serving = Arc::new(ServingRuntime::new(runtime));
    let traffic = Arc::default();
    RequestBatching::with(LaneContext { store, tasks, clock, bounds, traffic }, serving)
}

async fn items(store: &dyn Store) {
    let role = Role::Data { owner: None };
    let spec = CollectionSpec { name: "items".to_owned(), role, create: true, mappings: None };
    store.open_collection(&spec).await.unwrap();
}

impl Fixture {
    async fn new(bounds: Bounds) -> Self {
        Self::with_runtime(None, bounds).await
    }

    async fn with_runtime(runtime: Option<Handle>, bounds: Bounds) -> Self {
        let gate = Arc::new(Gate {
            inner: MemoryStore::new(),
            open: Semaphore::new(0),
            under_way: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            requests: Mutex::default(),
        });
        items(&*gate).await;
        let tasks = TaskTracker::new();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let layer = Arc::new(shared_in(runtime, gate.clone(), &tasks, &clock, bounds));
        Self { gate, layer, tasks }
    }

    /// Spawns a caller that creates documents with these ids.
    fn create(&self, ids: &str) -> JoinHandle<Vec<Outcome>> {
        self.write(ids, "{}")
    }

    fn write(&self, ids: &str, source: &str) -> JoinHandle<Vec<Outcome>> {
        self.write_to("items", ids, source)
    }

    fn write_to(&self, collection: &str, ids: &str, source: &str) -> JoinHandle<Vec<Outcome>> {
        let writes: Vec<Write> = ids
            .split(' ')
            .map(|id| Write::new(Key::new(collection, id), WriteOp::Create(source.into())))
            .collect();
        let layer = self.layer.clone();
        tokio::spawn(async move { Store::write_many(&*layer, &writes).await })
    }

    /// Releases this many requests, and waits until all tasks are idle.
    async fn let_go(&self, requests: usize) {
        self.gate.open.add_permits(requests);
        self.calm().await;
    }

    async fn calm(&self) {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    fn requests(&self) -> Vec<String> {
        self.gate.requests.lock().iter().map(|ids| ids.join(" ")).collect()
    }
}

fn applied(outcomes: &[Outcome]) -> bool {
    outcomes.iter().all(|outcome| matches!(outcome, Outcome::Applied(_)))
}

#[tokio::test]
async fn queued_batches_share_the_next_request() {
    let fixture = Fixture::new(BOUNDS).await;
    let mut callers = vec![fixture.create("first")];
    fixture.calm().await;
    assert_eq!(fixture.requests(), ["first"], "nothing else is under way");
    callers.extend(["a b", "c", "d e"].map(|ids| fixture.create(ids)));
    fixture.calm().await;
    assert_eq!(fixture.requests().len(), 1, "the only request is under way");
    fixture.let_go(1).await;
    assert_eq!(fixture.requests(), ["first", "a b c d e"]);
    fixture.let_go(1).await;
    for (caller, count) in callers.into_iter().zip([1, 2, 1, 2]) {
        let outcomes = caller.await.unwrap();
        assert!(outcomes.len() == count && applied(&outcomes), "{outcomes:?}");
    }
}

#[tokio::test]
async fn kinds_do_not_wait_for_each_other() {
    let fixture = Fixture::new(BOUNDS).await;
    let writer = fixture.create("a");
    let layer = fixture.layer.clone();
    let reader =
        tokio::spawn(async move { Store::get_many(&*layer, &[Key::new("items", "b")]).await });
    fixture.calm().await;
    assert_eq!(fixture.requests().len(), 2);
    fixture.let_go(2).await;
    assert!(applied(&writer.await.unwrap()));
    assert_eq!(reader.await.unwrap(), [Read::Absent]);
}

#[tokio::test]
async fn requests_are_bounded_by_operations_and_bytes() {
    let fixture = Fixture::new(BOUNDS).await;
    let mut callers = vec![fixture.create("first")];
    fixture.calm().await;
    callers.extend((0..5).map(|n| fixture.create(&format!("{n}a {n}b"))));
    fixture.calm().await;
    fixture.let_go(3).await;
    assert_eq!(fixture.requests()[1..], ["0a 0b 1a 1b 2a 2b 3a 3b", "4a 4b"]);
    let long = format!("{{\"text\":\"{}\"}}", "x".repeat(24_000));
    callers.push(fixture.create("second"));
    fixture.calm().await;
    callers.extend((0..5).map(|n| fixture.write(&format!("{n}"), &long)));
    fixture.calm().await;
    fixture.let_go(3).await;
    assert_eq!(fixture.requests()[4..], ["0 1 2 3", "4"]);
    assert!(join_all(callers).await.into_iter().all(|outcomes| applied(&outcomes.unwrap())));
}

#[tokio::test]
async fn large_batch_delays_no_small_batch() {
    let fixture = Fixture::new(BOUNDS).await;
    let small = fixture.create("a");
    let large = ["b c d", "e f g"].map(|ids| fixture.create(ids));
    fixture.calm().await;
    assert_eq!(
        fixture.requests(),
        ["b c d", "a"],
        "one large batch at a time, with the small ones"
    );
    let other = fixture.create("h");
    fixture.let_go(4).await;
    assert!(applied(&small.await.unwrap()) && applied(&other.await.unwrap()));
    assert!(join_all(large).await.into_iter().all(|outcomes| applied(&outcomes.unwrap())));
}

/// A caller that stops polling keeps no permit for large batches.
#[tokio::test]
async fn unpolled_large_batch_leaves_its_slot() {
    let fixture = Fixture::new(BOUNDS).await;
    let writes =
        ["b", "c", "d"].map(|id| Write::new(Key::new("items", id), WriteOp::Create("{}".into())));
    let mut unpolled = Box::pin(Store::write_many(&*fixture.layer, &writes));
    assert!(futures::poll!(&mut unpolled).is_pending());
    fixture.calm().await;
    let other = fixture.create("e f g");
    fixture.let_go(2).await;
    assert_eq!(fixture.requests(), ["b c d", "e f g"]);
    assert!(applied(&other.await.unwrap()));
    assert!(applied(&unpolled.await));
}

/// A runtime that rests does not send its requests.
///
/// So no request carries callers of another runtime.
#[test]
fn runtimes_share_no_request() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (resting, other) = (runtime(), runtime());
    let fixture = other.block_on(Fixture::new(BOUNDS));
    resting.block_on(async {
        fixture.create("a");
        fixture.calm().await;
        // Queued after the first request.
        fixture.create("b");
        fixture.calm().await;
    });
    // The request of the resting runtime stays under way, and no other request waits for it.
    other.block_on(async {
        fixture.gate.open.add_permits(3);
        assert!(applied(&fixture.create("c").await.unwrap()));
    });
    assert_eq!(fixture.requests(), ["a", "c"]);
    resting.block_on(fixture.calm());
    assert_eq!(fixture.requests(), ["a", "c", "b"]);
}

#[tokio::test]
async fn callers_wait_outside_of_a_full_queue() {
    let fixture = Fixture::new(Bounds { queued: 4, ..BOUNDS }).await;
    let callers: Vec<_> = (0..7).map(|n| fixture.create(&format!("{n}"))).collect();
    fixture.calm().await;
    fixture.let_go(1).await;
    assert_eq!(fixture.requests().len(), 2);
    assert!(fixture.requests().iter().all(|ids| ids.split(' ').count() <= 4));
    fixture.let_go(2).await;
    assert_eq!(fixture.requests().join(" "), "0 1 2 3 4 5 6");
    assert!(join_all(callers).await.into_iter().all(|outcomes| applied(&outcomes.unwrap())));
}

/// A caller that waits for room and is not polled keeps none.
#[tokio::test]
async fn unpolled_caller_is_queued_once_there_is_room() {
    let fixture = Fixture::new(Bounds { queued: 2, ..BOUNDS }).await;
    let first = fixture.create("a");
    fixture.calm().await;
    let queued = ["b", "c"].map(|id| fixture.create(id));
    fixture.calm().await;
    let write = |id: &str| [Write::new(Key::new("items", id), WriteOp::Create("{}".into()))];
    let (kept, dropped) = (write("d"), write("e"));
    let mut unpolled = Box::pin(Store::write_many(&*fixture.layer, &kept));
    assert!(futures::poll!(&mut unpolled).is_pending());
    {
        let mut dropped = Box::pin(Store::write_many(&*fixture.layer, &dropped));
        assert!(futures::poll!(&mut dropped).is_pending());
    }
    let other = fixture.create("f");
    fixture.calm().await;
    assert_eq!(fixture.requests(), ["a"], "the queue is full");
    fixture.let_go(3).await;
    assert_eq!(fixture.requests(), ["a", "b c", "d f"]);
    for caller in queued.into_iter().chain([first, other]) {
        assert!(applied(&caller.await.unwrap()));
    }
    assert!(applied(&unpolled.await));
    fixture.tasks.close();
    fixture.tasks.wait().await;
}

#[tokio::test]
async fn dropped_caller_disturbs_no_other_caller() {
    let fixture = Fixture::new(BOUNDS).await;
    let first = fixture.create("first");
    fixture.calm().await;
    let (a, b, c) = (fixture.create("a"), fixture.create("b"), fixture.create("c"));
    fixture.calm().await;
    // Queued, so never sent.
    a.abort();
    fixture.let_go(1).await;
    assert_eq!(fixture.requests(), ["first", "b c"]);
    // Under way, so its answer is discarded.
    b.abort();
    fixture.let_go(1).await;
    assert!(applied(&first.await.unwrap()) && applied(&c.await.unwrap()));
    let reader = ["a", "b", "c"].map(|id| Key::new("items", id));
    let reads = fixture.gate.inner.get_many(&reader).await;
    assert_eq!(reads[0], Read::Absent);
    assert!(matches!(reads[1..], [Read::Found { .. }, Read::Found { .. }]), "{reads:?}");
}

#[tokio::test]
async fn panic_reaches_only_callers_of_its_request() {
    let fixture = Fixture::new(BOUNDS).await;
    let first = fixture.create("first");
    fixture.calm().await;
    let panicking = ["a", "panic", "b"].map(|ids| fixture.create(ids));
    fixture.calm().await;
    fixture.let_go(1).await;
    let next = fixture.create("next");
    fixture.let_go(2).await;
    assert_eq!(fixture.requests(), ["first", "a panic b", "next"]);
    assert!(applied(&first.await.unwrap()) && applied(&next.await.unwrap()));
    let mut told = Vec::new();
    for caller in panicking {
        let panic = caller.await.unwrap_err().into_panic();
        told.push(*panic.downcast_ref::<&str>().unwrap());
    }
    told.sort_unstable();
    let shared = "the store panicked in a shared request";
    assert_eq!(told, [shared, shared, "the store panics"]);
    fixture.tasks.close();
    fixture.tasks.wait().await;
}

#[tokio::test]
async fn missing_answers_are_unknown() {
    let fixture = Fixture::new(BOUNDS).await;
    fixture.gate.open.add_permits(10);
    let callers = ["a b", "c short", "d"].map(|ids| fixture.create(ids));
    let [a, b, c] = join_all(callers).await.try_into().unwrap();
    assert_eq!(fixture.requests(), ["a b c short d"]);
    assert!(applied(&a.unwrap()));
    let b = b.unwrap();
    assert!(matches!(b[..], [Outcome::Applied(_), Outcome::Unknown(_)]), "{b:?}");
    assert!(matches!(c.unwrap()[..], [Outcome::Unknown(_)]));
    let keys = ["a", "short"].map(|id| Key::new("items", id));
    let reads = Store::get_many(&*fixture.layer, &keys).await;
    assert!(matches!(&reads[..], [Read::Found { .. }, Read::Unavailable(error)]
        if error.kind == StoreErrorKind::Unavailable));
    // A large batch gives the same result.
    let outcomes = fixture.create("x short y").await.unwrap();
    assert!(matches!(
        outcomes[..],
        [Outcome::Applied(_), Outcome::Unknown(_), Outcome::Unknown(_)]
    ));
}

#[tokio::test(start_paused = true)]
async fn slow_request_leaves_its_slot() {
    let fixture = Fixture::new(Bounds { requests: 2, spare_requests: 2, ..BOUNDS }).await;
    let hanging = fixture.create("hang");
    fixture.calm().await;
    let mut callers = Vec::new();
    for n in 0..3 {
        callers.push(fixture.create(&format!("{n}")));
        fixture.calm().await;
    }
    assert_eq!(fixture.gate.under_way.load(Ordering::SeqCst), 2);
    tokio::time::sleep(Duration::from_millis(150)).await;
    fixture.calm().await;
    assert_eq!(fixture.requests(), ["hang", "0", "1 2"], "two are slow: two more may go");
    for n in 3..6 {
        callers.push(fixture.create(&format!("{n}")));
        fixture.calm().await;
    }
    assert_eq!(fixture.requests().len(), 4);
    assert_eq!(fixture.gate.most.load(Ordering::SeqCst), 4);
    fixture.let_go(10).await;
    assert!(join_all(callers).await.into_iter().all(|outcomes| applied(&outcomes.unwrap())));
    hanging.abort();
}

#[tokio::test]
async fn collections_share_no_request_and_no_slot() {
    let fixture = Fixture::new(BOUNDS).await;
    let cold = ["hang", "x", "y"].map(|id| fixture.write_to("cold", id, "{}"));
    fixture.calm().await;
    let mut hot = vec![fixture.create("first")];
    fixture.calm().await;
    hot.extend(["a", "b"].map(|id| fixture.create(id)));
    fixture.calm().await;
    fixture.let_go(2).await;
    assert_eq!(fixture.requests(), ["hang x y", "first", "a b"]);
    assert!(join_all(hot).await.into_iter().all(|outcomes| applied(&outcomes.unwrap())));
    cold.into_iter().for_each(|caller| caller.abort());
}

#[tokio::test]
async fn no_caller_waits_for_an_ended_runtime() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_time().build().unwrap();
    let fixture = Fixture::with_runtime(Some(runtime.handle().clone()), BOUNDS).await;
    let layer = fixture.layer.clone();
    runtime.spawn(async move {
        let write = Write::new(Key::new("items", "a"), WriteOp::Create("{}".into()));
        Store::write_many(&*layer, &[write]).await
    });
    while fixture.requests().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let queued = fixture.create("b");
    fixture.calm().await;
    assert_eq!(fixture.requests(), ["a"], "the only request is under way");
    tokio::task::spawn_blocking(move || runtime.shutdown_timeout(Duration::from_secs(5)))
        .await
        .unwrap();
    let outcomes = queued.await.unwrap();
    assert!(matches!(outcomes[..], [Outcome::Rejected(_)]), "{outcomes:?}");
    fixture.gate.open.add_permits(1);
    assert!(applied(&fixture.create("c").await.unwrap()), "other callers continue");
}

#[tokio::test]
async fn conformance_suite_passes_with_batching() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let usual = Bounds::of(1 << 20);
    for bounds in [BOUNDS, Bounds { operations: 100, queued: 7, ..BOUNDS }, usual] {
        let tasks = TaskTracker::new();
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let layer = shared(store, &tasks, &clock, bounds);
        conformance::run(Arc::new(layer), Options::new("shared").with_race(4, 10)).await;
    }
}

/// A write, before the versions of documents are known.
#[derive(Clone, Copy, Debug)]
enum Step {
    Create(u8),
    /// At the version before the batch, or at one that never existed.
    Replace(u8, bool),
    Delete(u8, bool),
    Verify(u8, bool),
    Check(u8),
}

fn step() -> impl Strategy<Value = Step> {
    (0..5_u8, 0..3_u8, any::<bool>()).prop_map(|(kind, id, stale)| match kind {
        0 => Step::Create(id),
        1 => Step::Replace(id, stale),
        2 => Step::Delete(id, stale),
        3 => Step::Verify(id, stale),
        _ => Step::Check(id),
    })
}

fn keys() -> Vec<Key> {
    (0..3).map(|id| Key::new("items", format!("{id}"))).collect()
}

/// The writes of a batch, for the current state of the store.
async fn writes_of(steps: &[Step], store: &MemoryStore) -> Vec<Write> {
    let reads = store.get_many(&keys()).await;
    let never = Version::new(77, 77);
    let at = |id: u8, stale: bool| match &reads[usize::from(id)] {
        Read::Found { version, .. } if !stale => *version,
        _ => never,
    };
    let write = |(n, step): (usize, &Step)| {
        let source = || format!("{{\"n\":{n}}}").into();
        let (id, op) = match *step {
            Step::Create(id) => (id, WriteOp::Create(source())),
            Step::Replace(id, stale) => (id, WriteOp::Replace(source(), at(id, stale))),
            Step::Delete(id, stale) => (id, WriteOp::Delete(at(id, stale))),
            Step::Verify(id, stale) => (id, WriteOp::Verify((!stale).then(|| at(id, stale)))),
            Step::Check(id) => (id, WriteOp::Check(source())),
        };
        Write::new(Key::new("items", format!("{id}")), op)
    };
    steps.iter().enumerate().map(write).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Concurrent callers see the results of serial calls. The lane sends one request at a time.
    #[test]
    fn concurrent_callers_equal_serial_callers(
        batches in proptest::collection::vec(proptest::collection::vec(step(), 1..5), 1..12),
        operations in 16..40_usize,
        queued in 1..20_usize,
    ) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().build().unwrap();
        runtime.block_on(async {
            let plain = MemoryStore::new();
            items(&plain).await;
            let (mut all, mut expected) = (Vec::new(), Vec::new());
            for steps in &batches {
                let writes = writes_of(steps, &plain).await;
                expected.push(plain.write_many(&writes).await);
                all.push(writes);
            }
            let inner = Arc::new(MemoryStore::new());
            items(&*inner).await;
            let tasks = TaskTracker::new();
            let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
            let bounds = Bounds { operations, queued, ..BOUNDS };
            let layer = shared(inner.clone(), &tasks, &clock, bounds);
            let outcomes = join_all(all.iter().map(|writes| Store::write_many(&layer, writes))).await;
            assert_eq!(outcomes, expected);
            assert_eq!(inner.get_many(&keys()).await, plain.get_many(&keys()).await);
            let reads = join_all((0..9).map(|_| Store::read_primary(&layer, &[]).map(|r| r.len()))).await;
            assert!(reads.iter().all(|count| *count == 0));
        });
    }
}
