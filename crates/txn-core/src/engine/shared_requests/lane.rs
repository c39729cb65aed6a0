//! One lane per call: a queue of batches, and a few requests under way.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::task::TaskTracker;

use super::Bounds;
use super::kind::Kind;
use crate::clock::Clock;
use crate::store::Store;

/// A request that is under way for longer leaves its slot to another one.
const SLOW: Duration = Duration::from_millis(100);

/// The panic of all those whose request the store panicked in, but for one, who gets the store's own.
const PANICKED: &str = "the store panicked in a shared request";

/// See the [module](self).
pub(super) struct Lane<K: Kind> {
    store: Arc<dyn Store>,
    tasks: TaskTracker,
    clock: Arc<dyn Clock>,
    bounds: Bounds,
    /// A permit for each operation that may be queued. First come, first served.
    room: Arc<Semaphore>,
    large: Semaphore,
    state: Mutex<State<K>>,
}

struct State<K: Kind> {
    queue: VecDeque<Batch<K>>,
    /// Tasks that carry requests.
    carriers: usize,
    /// Since when each request is under way, by its number.
    under_way: BTreeMap<u64, Duration>,
    next_request: u64,
}

/// What one caller asked for.
struct Batch<K: Kind> {
    operations: Vec<K::Operation>,
    bytes: usize,
    caller: oneshot::Sender<Reply<K>>,
    /// Its place in the queue, given up when it leaves.
    _room: OwnedSemaphorePermit,
}

enum Reply<K: Kind> {
    Answers(Vec<K::Answer>),
    Panicked(Box<dyn Any + Send>),
}

impl<K: Kind> Lane<K> {
    pub(super) fn new(
        store: Arc<dyn Store>,
        tasks: TaskTracker,
        clock: Arc<dyn Clock>,
        bounds: Bounds,
    ) -> Arc<Self> {
        let state = State {
            queue: VecDeque::new(),
            carriers: 0,
            under_way: BTreeMap::new(),
            next_request: 0,
        };
        Arc::new(Self {
            store,
            tasks,
            clock,
            bounds,
            room: Arc::new(Semaphore::new(bounds.queued)),
            large: Semaphore::new(bounds.large_slots),
            state: Mutex::new(state),
        })
    }

    /// An answer for each operation, in order.
    pub(super) async fn ask(self: &Arc<Self>, operations: &[K::Operation]) -> Vec<K::Answer> {
        let bytes = operations.iter().map(K::bytes).fold(0, usize::saturating_add);
        if operations.is_empty() {
            return Vec::new();
        }
        if self.bounds.is_large(operations.len(), bytes) {
            // Closed never: without a permit it would be sent beyond the bound, and no worse.
            let _slot = self.large.acquire().await;
            let mut answers = K::send(&*self.store, operations).await;
            answers.resize_with(operations.len(), K::unanswered);
            return answers;
        }
        let reply = self.queue(operations, bytes).await;
        match reply.await {
            Ok(Reply::Answers(answers)) => answers,
            Ok(Reply::Panicked(panic)) => resume_unwind(panic),
            // It was sent, and what carried it is gone.
            Err(_) => operations.iter().map(|_| K::unanswered()).collect(),
        }
    }

    /// Queues a batch, and has it sent if there is a slot.
    async fn queue(
        self: &Arc<Self>,
        operations: &[K::Operation],
        bytes: usize,
    ) -> oneshot::Receiver<Reply<K>> {
        let (caller, reply) = oneshot::channel();
        let most = operations.len().min(self.bounds.queued);
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        // Closed never; the caller would learn that nobody carries its request.
        let Ok(room) = self.room.clone().acquire_many_owned(most).await else { return reply };
        let batch = Batch { operations: operations.to_vec(), bytes, caller, _room: room };
        let carrier = {
            let mut state = self.state.lock();
            state.queue.push_back(batch);
            let free = state.carriers < self.slots(&state);
            free.then(|| {
                state.carriers += 1;
                Carrier { lane: self.clone(), request: None, has_left: false }
            })
        };
        if let Some(carrier) = carrier {
            self.tasks.spawn(carrier.run());
        }
        reply
    }

    fn slots(&self, state: &State<K>) -> usize {
        let slots = self.bounds.slots;
        if state.carriers < slots {
            return slots;
        }
        let now = self.clock.monotonic();
        let is_slow = |since: &&Duration| now.saturating_sub(**since) >= SLOW;
        slots + state.under_way.values().filter(is_slow).count().min(self.bounds.spare_slots)
    }

    /// The next request: its number and its batches, oldest first. Where there is none, the carrier that asks has left.
    fn take(&self) -> Option<(u64, Vec<Batch<K>>)> {
        let mut state = self.state.lock();
        let mut batches: Vec<Batch<K>> = Vec::new();
        // With fewer slow requests there are fewer slots. Those who are left come back for what is queued.
        if state.carriers <= self.slots(&state) {
            let (mut operations, mut bytes) = (0, 0);
            while let Some(next) = state.queue.pop_front() {
                if next.caller.is_closed() {
                    continue;
                }
                operations += next.operations.len();
                bytes += next.bytes;
                let fits = operations <= self.bounds.operations && bytes <= self.bounds.bytes;
                if !fits && !batches.is_empty() {
                    state.queue.push_front(next);
                    break;
                }
                batches.push(next);
            }
        }
        if batches.is_empty() {
            state.carriers -= 1;
            return None;
        }
        let number = state.next_request;
        state.next_request += 1;
        state.under_way.insert(number, self.clock.monotonic());
        Some((number, batches))
    }
}

/// Has a slot, and carries requests in it as long as there are any.
struct Carrier<K: Kind> {
    lane: Arc<Lane<K>>,
    /// The request under way.
    request: Option<u64>,
    /// It has given its slot back.
    has_left: bool,
}

impl<K: Kind> Carrier<K> {
    async fn run(mut self) {
        loop {
            // Whoever is ready to run may join the request. Where nobody is, this takes no time.
            tokio::task::yield_now().await;
            let Some((number, batches)) = self.lane.take() else { break };
            self.request = Some(number);
            self.carry(batches).await;
            self.lane.state.lock().under_way.remove(&number);
            self.request = None;
        }
        self.has_left = true;
    }

    /// Sends one request, and gives everybody what is theirs of the answer.
    async fn carry(&self, batches: Vec<Batch<K>>) {
        let mut operations = Vec::with_capacity(batches.iter().map(|b| b.operations.len()).sum());
        let mut callers = Vec::with_capacity(batches.len());
        for batch in batches {
            callers.push((batch.operations.len(), batch.caller));
            operations.extend(batch.operations);
        }
        let request = async { K::send(&*self.lane.store, &operations).await };
        match AssertUnwindSafe(request).catch_unwind().await {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for (count, caller) in callers {
                    let mut theirs: Vec<_> = answers.by_ref().take(count).collect();
                    theirs.resize_with(count, K::unanswered);
                    // A caller that is gone misses nothing.
                    let _ = caller.send(Reply::Answers(theirs));
                }
            }
            Err(panic) => {
                let mut panic = Some(panic);
                for (_, caller) in callers {
                    let theirs = panic.take().unwrap_or_else(|| Box::new(PANICKED));
                    if let Err(Reply::Panicked(unseen)) = caller.send(Reply::Panicked(theirs)) {
                        panic = Some(unseen);
                    }
                }
            }
        }
    }
}

/// A carrier that does not come to its end goes down with its runtime: nobody waits for it in vain.
impl<K: Kind> Drop for Carrier<K> {
    fn drop(&mut self) {
        if self.has_left {
            return;
        }
        let unsent = {
            let mut state = self.lane.state.lock();
            state.carriers -= 1;
            if let Some(number) = self.request {
                state.under_way.remove(&number);
            }
            std::mem::take(&mut state.queue)
        };
        for batch in unsent {
            let answers = batch.operations.iter().map(|_| K::unsent()).collect();
            let _ = batch.caller.send(Reply::Answers(answers));
        }
    }
}
