//! Request batching: joins operations of running transactions into few store requests.
//!
//! [`RequestBatching`] is a store in front of the user's store. A request leaves as soon as the
//! bound on requests allows one, with the batches that are queued then. No timer delays a request:
//! on an idle lane an operation leaves at once, in a request of its own. The store contract allows
//! batching, because a batch is a list of independent operations of single documents, each with its
//! own outcome.
//!
//! - The batch of one caller is never split and never reordered. Batches leave in the order of
//!   their arrival; two writes of one document in one request happen in that order.
//! - Nothing is ever sent twice.
//! - A large batch has a request of its own, with a bound of its own, and delays no small batch.
//! - A caller that is dropped while its batch is queued takes the batch out. A batch that was sent
//!   completes, and its answer is discarded. A large batch ends with its caller, even if it was
//!   sent. In each case the caller has an unknown outcome, as for any dropped future.
//! - Each runtime has lanes of its own, so that a request carries callers of one runtime only.
//!   Callers in a runtime that may stall use the lanes of another runtime ([`ServingRuntime`]).
//! - Each set of collections has lanes of its own: a slow or blocked index delays no operation of
//!   another index. A transaction that uses several collections has one request for all of them.
//! - A panic of the store reaches only the callers with operations in that request.
//! - A missing answer is `Unknown` for a write and unavailable for a read. If the runtime of a lane
//!   ends, its sent operations are unknown, and its queued operations are refused as never sent.

mod kind;
mod lane;
#[cfg(all(test, shuttle))]
mod schedules;
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the callers of a test are no tasks of a domain")]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use tokio::runtime::{self, Handle};
use tokio_util::task::TaskTracker;

use crate::clock::Clock;
use crate::engine::serving_runtime::ServingRuntime;
use crate::sync::Mutex;
use kind::{AnyCopy, Kind, Operation, Primary, Writes};
use lane::Lane;
use txn_store::{Key, Layer, Outcome, Read, Store, Write};

/// The bounds of one lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Requests under way, per kind: reads, reads from the primary, writes.
    pub(crate) requests: usize,
    /// Extra requests under way, one per slow request.
    ///
    /// So one slow shard does not block the rest.
    pub(crate) spare_requests: usize,
    /// Large batches under way, per kind.
    pub(crate) large_requests: usize,
    /// Operations in one request.
    pub(crate) operations: usize,
    /// Bytes of operations in one request.
    pub(crate) bytes: usize,
    /// Queued operations. Further callers wait outside of the queue.
    pub(crate) queued: usize,
    /// Bytes of queued operations.
    pub(crate) queued_bytes: usize,
}

impl Bounds {
    /// The bounds for a store with this maximum size of a document.
    fn of(max_document_bytes: usize) -> Self {
        Self {
            requests: 4,
            spare_requests: 28,
            large_requests: 4,
            operations: 500,
            // Servers begin with a larger request before they have read it to its end.
            bytes: max_document_bytes.min(384 << 10),
            queued: 4_000,
            queued_bytes: 32 << 20,
        }
    }

    /// Whether a batch has a request of its own.
    fn is_large(&self, operations: usize, bytes: usize) -> bool {
        operations > self.operations / 4 || bytes > self.bytes / 4
    }
}

/// A store that batches requests to the user's store.
pub(crate) struct RequestBatching {
    context: LaneContext,
    serving: Arc<ServingRuntime>,
    reads: Lanes<AnyCopy>,
    primary_reads: Lanes<Primary>,
    writes: Lanes<Writes>,
}

/// The parts that the lanes of all runtimes share.
#[derive(Clone)]
struct LaneContext {
    store: Arc<dyn Store>,
    tasks: TaskTracker,
    clock: Arc<dyn Clock>,
    bounds: Bounds,
    traffic: Arc<Traffic>,
}

/// The shared requests so far, for metrics.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    requests: AtomicU64,
    operations: AtomicU64,
}

impl Traffic {
    fn note(&self, operations: usize) {
        let operations = u64::try_from(operations).unwrap_or(u64::MAX);
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.operations.fetch_add(operations, Ordering::Relaxed);
    }

    /// The number of requests.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// The number of operations in all requests.
    pub(crate) fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }
}

/// The lanes of one kind of call.
struct Lanes<K: Kind>(Mutex<LanesOfRuntimes<K>>);

/// The collections of a batch, in order.
type CollectionNames = Vec<Arc<str>>;

struct LanesOfRuntimes<K: Kind> {
    /// The lanes of the most recent runtime.
    ///
    /// Idle lanes stay, so that a process with one runtime creates each lane once.
    last: Option<LanesOfRuntime<K>>,
    /// Every lane in use.
    ///
    /// An idle lane of another runtime is dropped, because its handle would keep files of an ended
    /// runtime open.
    known: HashMap<(runtime::Id, CollectionNames), Weak<Lane<K>>>,
}

/// The maximum number of idle lanes that stay.
const IDLE_LANES: usize = 64;

impl<K: Kind> Lanes<K> {
    fn new() -> Self {
        Self(Mutex::new(LanesOfRuntimes { last: None, known: HashMap::new() }))
    }

    /// The lane of a runtime for batches of these collections.
    fn of(
        &self,
        runtime: &Handle,
        collections: CollectionNames,
        context: &LaneContext,
    ) -> Arc<Lane<K>> {
        let mut lanes = self.0.lock();
        let (lane, ended) = lanes.find(runtime, collections, context);
        // Dropping a lane may drop the last handle of its runtime: not under the lock.
        drop(lanes);
        drop(ended);
        lane
    }
}

/// The lanes of one runtime.
type LanesOfRuntime<K> = (runtime::Id, HashMap<CollectionNames, Arc<Lane<K>>>);

impl<K: Kind> LanesOfRuntimes<K> {
    /// Returns the lane, and the lanes that are no longer needed.
    fn find(
        &mut self,
        runtime: &Handle,
        collections: CollectionNames,
        context: &LaneContext,
    ) -> (Arc<Lane<K>>, Option<LanesOfRuntime<K>>) {
        let id = runtime.id();
        let ended = self.last.take_if(|(of, idle)| *of != id || idle.len() >= IDLE_LANES);
        let (_, idle) = self.last.get_or_insert_with(|| (id, HashMap::new()));
        if let Some(lane) = idle.get(&collections) {
            return (lane.clone(), ended);
        }
        let key = (id, collections.clone());
        let lane = self.known.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
            let lane = Lane::new(context.clone(), runtime.clone());
            self.known.retain(|_, lane| lane.strong_count() > 0);
            self.known.insert(key, Arc::downgrade(&lane));
            lane
        });
        idle.insert(collections, lane.clone());
        (lane, ended)
    }
}

/// The collections of operations, each once, in order.
fn collections<O: Operation>(operations: &[O]) -> CollectionNames {
    let mut all = CollectionNames::with_capacity(1);
    for operation in operations {
        let collection = operation.collection();
        if let Err(place) = all.binary_search(collection) {
            all.insert(place, collection.clone());
        }
    }
    all
}

impl RequestBatching {
    /// Puts batching in front of `store`. Requests are tasks of `tasks`.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        tasks: TaskTracker,
        clock: Arc<dyn Clock>,
        serving: Arc<ServingRuntime>,
        traffic: Arc<Traffic>,
    ) -> Self {
        let bounds = Bounds::of(store.limits().max_document_bytes);
        Self::with(LaneContext { store, tasks, clock, bounds, traffic }, serving)
    }

    fn with(context: LaneContext, serving: Arc<ServingRuntime>) -> Self {
        let (reads, primary_reads, writes) = (Lanes::new(), Lanes::new(), Lanes::new());
        Self { context, serving, reads, primary_reads, writes }
    }

    /// Sends operations through the lane of the caller's runtime and collections.
    async fn ask<K: Kind>(
        &self,
        lanes: &Lanes<K>,
        operations: &[K::Operation],
    ) -> Vec<kind::AnswerOf<K>> {
        let runtime = Handle::current();
        let lane = lanes.of(self.serving.of(&runtime), collections(operations), &self.context);
        lane.ask(operations).await
    }
}

impl fmt::Debug for RequestBatching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RequestBatching").field(&self.context.store).finish()
    }
}

#[async_trait]
impl Layer for RequestBatching {
    fn inner(&self) -> &dyn Store {
        &*self.context.store
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        self.ask(&self.reads, keys).await
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        self.ask(&self.primary_reads, keys).await
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        self.ask(&self.writes, writes).await
    }
}
