//! Request batching in chosen schedules of its callers and requests.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;

use shuttle::future::{block_on, yield_now};
use shuttle::thread::{self, JoinHandle};

use super::*;
use crate::sync::schedules::{StoppedClock, check, end_runtime};
use txn_store::{MemoryStore, Version, WriteOp};

/// Answers each write with a version that names the document.
#[derive(Debug, Default)]
struct Echo {
    inner: MemoryStore,
    /// How often each document was sent.
    sent: std::sync::Mutex<BTreeMap<Arc<str>, usize>>,
    under_way: AtomicUsize,
    most: AtomicUsize,
}

#[async_trait]
impl Layer for Echo {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let under_way = 1 + self.under_way.fetch_add(1, Ordering::SeqCst);
        self.most.fetch_max(under_way, Ordering::SeqCst);
        for write in writes {
            *self.sent.lock().unwrap().entry(write.key.id.clone()).or_default() += 1;
        }
        yield_now().await;
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        writes.iter().map(|write| Outcome::Applied(version_of(&write.key.id))).collect()
    }
}

fn version_of(id: &str) -> Version {
    Version::new(id.bytes().fold(0, |all, byte| all * 256 + u64::from(byte)), 1)
}

/// A batch has at most two operations, a request eight, and the queue three.
const BOUNDS: Bounds = Bounds { queued: 3, ..super::tests::BOUNDS };

struct Fixture {
    store: Arc<Echo>,
    layer: Arc<RequestBatching>,
    tasks: TaskTracker,
}

fn writes(ids: &str) -> Vec<Write> {
    let write = |id| Write::new(Key::new("items", id), WriteOp::Create("{}".into()));
    ids.split(' ').map(write).collect()
}

impl Fixture {
    fn new() -> Self {
        let (store, tasks) = (Arc::new(Echo::default()), TaskTracker::new());
        let context = LaneContext {
            store: store.clone(),
            tasks: tasks.clone(),
            clock: Arc::new(StoppedClock),
            bounds: BOUNDS,
            traffic: Arc::default(),
        };
        let serving = Arc::new(ServingRuntime::new(None));
        let layer = Arc::new(RequestBatching::with(context, serving));
        Self { store, layer, tasks }
    }

    /// A thread that writes documents, and returns the outcomes.
    fn caller(&self, ids: &'static str) -> JoinHandle<Vec<Outcome>> {
        let layer = self.layer.clone();
        thread::spawn(move || block_on(Store::write_many(&*layer, &writes(ids))))
    }

    /// A thread that writes documents, and drops its future at some point.
    fn dropped_caller(&self, ids: &'static str) -> JoinHandle<()> {
        let layer = self.layer.clone();
        thread::spawn(move || {
            block_on(async {
                let writes = writes(ids);
                tokio::select! {
                    biased;
                    _ = Store::write_many(&*layer, &writes) => {}
                    () = yield_now() => {}
                }
            });
        })
    }

    fn sent(&self, id: &str) -> usize {
        self.store.sent.lock().unwrap().get(id).copied().unwrap_or_default()
    }

    /// Checks that the answers of a caller are its own, and that each document was sent once.
    fn is_answered(&self, ids: &str, outcomes: &[Outcome]) {
        let own: Vec<_> = ids.split(' ').map(|id| Outcome::Applied(version_of(id))).collect();
        assert_eq!(outcomes, own, "{ids}");
        assert!(ids.split(' ').all(|id| self.sent(id) == 1), "{ids}");
    }

    /// Checks that the bound held, that all tasks end, and that the queue has all of its room.
    fn is_idle(&self) {
        assert!(self.store.most.load(Ordering::SeqCst) <= BOUNDS.requests);
        let all = ["x", "y", "z"].map(|ids| self.caller(ids));
        for (ids, caller) in ["x", "y", "z"].into_iter().zip(all) {
            self.is_answered(ids, &caller.join().unwrap());
        }
        self.tasks.close();
        block_on(self.tasks.wait());
    }
}

/// More callers than the queue has room for.
#[test]
fn each_operation_is_answered_once_by_its_own_answer() {
    check(|| {
        let fixture = Fixture::new();
        let all = ["a", "b c", "d e", "f"];
        for (ids, caller) in all.into_iter().zip(all.map(|ids| fixture.caller(ids))) {
            fixture.is_answered(ids, &caller.join().unwrap());
        }
        fixture.is_idle();
    });
}

#[test]
fn dropped_caller_loses_nothing_of_others() {
    check(|| {
        let fixture = Fixture::new();
        let dropped = ["p q", "r"].map(|ids| fixture.dropped_caller(ids));
        let all = ["a", "b c"];
        for (ids, caller) in all.into_iter().zip(all.map(|ids| fixture.caller(ids))) {
            fixture.is_answered(ids, &caller.join().unwrap());
        }
        for caller in dropped {
            caller.join().unwrap();
        }
        assert!(["p", "q", "r"].iter().all(|id| fixture.sent(id) <= 1));
        fixture.is_idle();
    });
}

/// A refused operation was never sent, and an operation that was sent is unknown or answered.
#[test]
fn ended_runtime_answers_each_caller() {
    check(|| {
        let fixture = Fixture::new();
        let all = ["a", "b c", "d e"];
        let callers = all.map(|ids| fixture.caller(ids));
        let end = thread::spawn(end_runtime);
        for (ids, caller) in all.into_iter().zip(callers) {
            for (id, outcome) in ids.split(' ').zip(caller.join().unwrap()) {
                match outcome {
                    Outcome::Applied(version) => assert_eq!(version, version_of(id)),
                    Outcome::Rejected(_) => assert_eq!(fixture.sent(id), 0, "{id}"),
                    Outcome::Unknown(_) => assert!(fixture.sent(id) <= 1, "{id}"),
                    other => panic!("{id}: {other:?}"),
                }
            }
        }
        end.join().unwrap();
    });
}
