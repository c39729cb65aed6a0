//! Shared requests: a store in front of the user's, which joins the operations of all running transactions of this
//! process into few requests.
//!
//! A request goes out as soon as one of a few slots is free, with whatever is queued then. No timer delays it: where
//! nothing else is under way, an operation is sent at once, in a request of its own. The store contract allows it: a batch is
//! a list of independent operations of single documents, each with an outcome of its own.
//!
//! - One caller's batch is never split and never reordered. Batches are sent in the order in which they arrived; two
//!   writes of one document in one request happen in that order.
//! - Nothing is ever sent twice.
//! - A large batch has a request of its own, in a slot for large ones, so that no small one waits for it.
//! - A caller that is dropped while its batch is queued takes it out: it is not sent. Once it is sent it goes on to its
//!   end, and the answer is thrown away. A large batch ends with its caller, even if it was sent. To the caller each of
//!   these is what a dropped future always was: an unknown outcome.
//! - Each runtime has lanes of its own, so that a request carries callers of one runtime alone. Callers that can stop
//!   driving theirs use the lanes of another one ([`ServingRuntime`]).
//! - A panic of the store reaches those whose operations were in the request, and nobody else.

mod kind;
mod lane;
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the callers of a test are no tasks of a domain")]
mod tests;

use std::fmt;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::runtime::{self, Handle};
use tokio_util::task::TaskTracker;

use crate::clock::Clock;
use crate::engine::serving_runtime::ServingRuntime;
use crate::store::{Key, Layer, Outcome, Read, Store, Write};
use kind::{AnyCopy, Kind, Primary, Writes};
use lane::Lane;

/// How much goes out at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Requests under way, per kind: reads, reads from the primary, writes.
    pub(crate) slots: usize,
    /// More of them, one for each that has been under way for long: what one slow shard holds up does not stop the rest.
    pub(crate) spare_slots: usize,
    /// Large batches under way, per kind.
    pub(crate) large_slots: usize,
    /// Operations in one request.
    pub(crate) operations: usize,
    /// Bytes of operations in one request.
    pub(crate) bytes: usize,
    /// Operations that are queued. Callers wait outside then.
    pub(crate) queued: usize,
    /// Bytes of operations that are queued.
    pub(crate) queued_bytes: usize,
}

impl Bounds {
    /// Bounds for a store that takes documents of so many bytes.
    fn of(max_document_bytes: usize) -> Self {
        Self {
            slots: 4,
            spare_slots: 28,
            large_slots: 4,
            operations: 500,
            // Under the size from which servers begin with a request before they have read it to its end.
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

/// The user's store, with requests that are shared.
pub(crate) struct SharedRequests {
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
}

/// The lanes of one kind of call, one for each runtime that carries requests.
struct Lanes<K: Kind>(Mutex<LanesByRuntime<K>>);

struct LanesByRuntime<K: Kind> {
    /// The lane that was asked for last. It stays while it is idle, so that a process with one runtime
    /// makes one lane.
    last: Option<(runtime::Id, Arc<Lane<K>>)>,
    /// Every lane that is in use. An idle lane is dropped: its handle would keep the files of a runtime
    /// open that has ended.
    known: Vec<(runtime::Id, Weak<Lane<K>>)>,
}

impl<K: Kind> Lanes<K> {
    fn new() -> Self {
        Self(Mutex::new(LanesByRuntime { last: None, known: Vec::new() }))
    }

    /// The lane of a runtime.
    fn of(&self, runtime: &Handle, context: &LaneContext) -> Arc<Lane<K>> {
        let id = runtime.id();
        let mut lanes = self.0.lock();
        if let Some((of, lane)) = &lanes.last
            && *of == id
        {
            return lane.clone();
        }
        let known =
            lanes.known.iter().find(|(of, _)| *of == id).and_then(|(_, lane)| lane.upgrade());
        let lane = known.unwrap_or_else(|| {
            let lane = Lane::new(context.clone(), runtime.clone());
            lanes.known.retain(|(_, lane)| lane.strong_count() > 0);
            lanes.known.push((id, Arc::downgrade(&lane)));
            lane
        });
        // The lane before may end here, with its handle: not under the lock.
        let before = lanes.last.replace((id, lane.clone()));
        drop(lanes);
        drop(before);
        lane
    }
}

impl SharedRequests {
    /// In front of `store`; its requests are tasks of `tasks`.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        tasks: TaskTracker,
        clock: Arc<dyn Clock>,
        serving: Arc<ServingRuntime>,
    ) -> Self {
        let bounds = Bounds::of(store.limits().max_document_bytes);
        Self::with(LaneContext { store, tasks, clock, bounds }, serving)
    }

    fn with(context: LaneContext, serving: Arc<ServingRuntime>) -> Self {
        let (reads, primary_reads, writes) = (Lanes::new(), Lanes::new(), Lanes::new());
        Self { context, serving, reads, primary_reads, writes }
    }

    /// The lane in which the caller's operations go.
    fn lane<K: Kind>(&self, lanes: &Lanes<K>) -> Arc<Lane<K>> {
        lanes.of(self.serving.of(&Handle::current()), &self.context)
    }
}

impl fmt::Debug for SharedRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedRequests").field(&self.context.store).finish()
    }
}

#[async_trait]
impl Layer for SharedRequests {
    fn inner(&self) -> &dyn Store {
        &*self.context.store
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        self.lane(&self.reads).ask(keys).await
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        self.lane(&self.primary_reads).ask(keys).await
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        self.lane(&self.writes).ask(writes).await
    }
}
