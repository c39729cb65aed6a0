//! A lane: a queue of batches, and the requests under way.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::LaneContext;
use super::kind::{AnswerOf, Kind, Operation};
use crate::sync::{Mutex, spawn_on};

/// A request that takes longer is slow, and another request may start.
const SLOW: Duration = Duration::from_millis(100);

/// The panic of all callers except one, which gets the store's panic.
const PANICKED: &str = "the store panicked in a shared request";

/// The bytes of one permit of `room_for_bytes`.
const KILOBYTE: usize = 1 << 10;

/// See the [module](self).
pub(super) struct Lane<K: Kind> {
    context: LaneContext,
    /// The runtime of the requests.
    runtime: Handle,
    /// Permits for queued operations and, in the next field, for kilobytes.
    ///
    /// Callers get permits in the order of arrival.
    room: Arc<Semaphore>,
    room_for_bytes: Arc<Semaphore>,
    large: Semaphore,
    spare_large: Semaphore,
    state: Mutex<LaneState<K>>,
}

struct LaneState<K: Kind> {
    queue: VecDeque<Batch<K>>,
    /// When each request was started, by its number.
    under_way: BTreeMap<u64, Duration>,
    next_request: u64,
}

/// The operations of one caller.
struct Batch<K: Kind> {
    operations: Vec<K::Operation>,
    bytes: usize,
    caller: oneshot::Sender<Reply<K>>,
    /// The permits, released when the batch leaves the queue.
    room: Option<Room>,
}

/// A permit for each operation of a batch, and for each kilobyte.
type Room = [OwnedSemaphorePermit; 2];

enum Reply<K: Kind> {
    Answers(Vec<AnswerOf<K>>),
    Panicked(Box<dyn Any + Send>),
}

impl<K: Kind> Lane<K> {
    pub(super) fn new(context: LaneContext, runtime: Handle) -> Arc<Self> {
        let state =
            LaneState { queue: VecDeque::new(), under_way: BTreeMap::new(), next_request: 0 };
        let bounds = context.bounds;
        Arc::new(Self {
            context,
            runtime,
            room: Arc::new(Semaphore::new(bounds.queued)),
            room_for_bytes: Arc::new(Semaphore::new(bounds.queued_bytes / KILOBYTE)),
            large: Semaphore::new(bounds.large_requests),
            spare_large: Semaphore::new(bounds.spare_requests),
            state: Mutex::new(state),
        })
    }

    /// Sends operations. Returns an answer for each, in order.
    pub(super) async fn ask(self: &Arc<Self>, operations: &[K::Operation]) -> Vec<AnswerOf<K>> {
        let bytes = operations.iter().map(Operation::bytes).fold(0, usize::saturating_add);
        if operations.is_empty() {
            return Vec::new();
        }
        if self.context.bounds.is_large(operations.len(), bytes) {
            return self.ask_alone(operations).await;
        }
        let mut reply = self.queue(operations, bytes);
        loop {
            let answered = tokio::select! {
                biased;
                answered = &mut reply => answered,
                // Requests may have become slow since, so another request may start.
                () = self.context.clock.sleep(SLOW) => {
                    self.send_queued();
                    continue;
                }
            };
            return match answered {
                Ok(Reply::Answers(answers)) => answers,
                Ok(Reply::Panicked(panic)) => resume_unwind(panic),
                // The batch was sent, and its carrier is gone.
                Err(_) => operations.iter().map(|_| K::Operation::abandoned()).collect(),
            };
        }
    }

    /// Sends a large batch in a request of its own.
    ///
    /// A slow request takes a spare permit. A task sends the request, because a caller that does
    /// not poll its future would keep the permit.
    async fn ask_alone(self: &Arc<Self>, operations: &[K::Operation]) -> Vec<AnswerOf<K>> {
        let (this, owned) = (self.clone(), operations.to_vec());
        let sending = async move { this.send_alone(&owned).await };
        // Dropped with its caller, like a queued batch.
        let sent = AbortOnDropHandle::new(self.context.tasks.spawn_on(sending, &self.runtime));
        match sent.await {
            Ok(answers) => answers,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The request may have been sent, and its runtime has ended.
                Err(_) => operations.iter().map(|_| K::Operation::abandoned()).collect(),
            },
        }
    }

    async fn send_alone(&self, operations: &[K::Operation]) -> Vec<AnswerOf<K>> {
        // Never closed. Without a permit the request would only exceed the bound.
        let mut permit = self.large.acquire().await;
        self.context.traffic.note(operations.len());
        let mut request = K::send(&*self.context.store, operations);
        let mut answers = tokio::select! {
            biased;
            answers = &mut request => answers,
            () = self.context.clock.sleep(SLOW) => {
                if let Ok(spare) = self.spare_large.try_acquire() {
                    permit = Ok(spare);
                }
                request.await
            }
        };
        drop(permit);
        answers.resize_with(operations.len(), K::Operation::unanswered);
        answers
    }

    /// Queues a batch, and starts a request if the bound allows one.
    ///
    /// The batch waits until there is room.
    ///
    /// A task waits for room. A caller that does not poll its future would keep its permits, and
    /// block the callers after it.
    fn queue(
        self: &Arc<Self>,
        operations: &[K::Operation],
        bytes: usize,
    ) -> oneshot::Receiver<Reply<K>> {
        let (caller, reply) = oneshot::channel();
        let mut batch = Batch { operations: operations.to_vec(), bytes, caller, room: None };
        let [most, kilobytes] = self.permits(&batch);
        let room = self.room.clone().try_acquire_many_owned(most);
        let bytes_room = self.room_for_bytes.clone().try_acquire_many_owned(kilobytes);
        if let (Ok(room), Ok(bytes_room)) = (room, bytes_room) {
            batch.room = Some([room, bytes_room]);
            self.push(batch);
            return reply;
        }
        let mut waiting = Box::pin(self.clone().queue_later(batch));
        // The first poll puts the batch in line now, not when its task first runs.
        if waiting.as_mut().now_or_never().is_none() {
            spawn_on(&self.context.tasks, waiting, &self.runtime);
        }
        reply
    }

    /// The permits that a batch needs: operations and kilobytes.
    fn permits(&self, batch: &Batch<K>) -> [u32; 2] {
        let bounds = &self.context.bounds;
        let permits =
            |wanted: usize, most: usize| u32::try_from(wanted.min(most)).unwrap_or(u32::MAX);
        [
            permits(batch.operations.len(), bounds.queued),
            permits(batch.bytes / KILOBYTE + 1, bounds.queued_bytes / KILOBYTE),
        ]
    }

    /// Queues a batch once there is room. A dropped caller ends the wait.
    async fn queue_later(self: Arc<Self>, mut batch: Batch<K>) {
        let [most, kilobytes] = self.permits(&batch);
        let room = async {
            let room = self.room.clone().acquire_many_owned(most).await.ok()?;
            let bytes_room =
                self.room_for_bytes.clone().acquire_many_owned(kilobytes).await.ok()?;
            Some([room, bytes_room])
        };
        batch.room = tokio::select! {
            biased;
            () = batch.caller.closed() => return,
            room = room => room,
        };
        self.push(batch);
    }

    fn push(self: &Arc<Self>, batch: Batch<K>) {
        self.state.lock().queue.push_back(batch);
        self.send_queued();
    }

    /// Starts a request for the queued batches, if the bound allows one.
    fn send_queued(self: &Arc<Self>) {
        let carrier = {
            let mut state = self.state.lock();
            let now = self.context.clock.monotonic();
            if state.under_way.len() >= self.most_under_way(&state, now) {
                // Batches without a caller leave, so that waiting callers get their room.
                state.queue.retain(|batch| !batch.caller.is_closed());
                return;
            }
            if state.queue.is_empty() {
                return;
            }
            let number = state.next_request;
            state.next_request += 1;
            state.under_way.insert(number, now);
            Carrier { lane: self.clone(), number, ended: false }
        };
        spawn_on(&self.context.tasks, carrier.run(), &self.runtime);
    }

    /// The maximum number of requests under way.
    fn most_under_way(&self, state: &LaneState<K>, now: Duration) -> usize {
        let is_slow = |since: &&Duration| now.saturating_sub(**since) >= SLOW;
        let slow = state.under_way.values().filter(is_slow).count();
        self.context.bounds.requests + slow.min(self.context.bounds.spare_requests)
    }

    /// Takes the batches of the next request, oldest first.
    fn take(&self, number: u64) -> Vec<Batch<K>> {
        let mut state = self.state.lock();
        let mut batches: Vec<Batch<K>> = Vec::new();
        let (mut operations, mut bytes) = (0, 0);
        while let Some(next) = state.queue.pop_front() {
            if next.caller.is_closed() {
                continue;
            }
            operations += next.operations.len();
            bytes += next.bytes;
            let fits =
                operations <= self.context.bounds.operations && bytes <= self.context.bounds.bytes;
            if !fits && !batches.is_empty() {
                state.queue.push_front(next);
                break;
            }
            batches.push(next);
        }
        if !batches.is_empty() {
            let now = self.context.clock.monotonic();
            state.under_way.insert(number, now);
        }
        batches
    }
}

/// One request under way, as the lane counts it.
struct Carrier<K: Kind> {
    lane: Arc<Lane<K>>,
    number: u64,
    /// Whether the request has ended.
    ended: bool,
}

impl<K: Kind> Carrier<K> {
    async fn run(mut self) {
        // Other tasks that are ready may join the request. On an idle runtime this takes no time.
        tokio::task::yield_now().await;
        let batches = self.lane.take(self.number);
        if !batches.is_empty() {
            self.carry(batches).await;
        }
        self.ended = true;
    }

    /// Sends one request, and distributes the answers to its callers.
    async fn carry(&self, batches: Vec<Batch<K>>) {
        let mut operations = Vec::with_capacity(batches.iter().map(|b| b.operations.len()).sum());
        let mut callers = Vec::with_capacity(batches.len());
        for batch in batches {
            callers.push((batch.operations.len(), batch.caller));
            operations.extend(batch.operations);
        }
        self.lane.context.traffic.note(operations.len());
        let request = async { K::send(&*self.lane.context.store, &operations).await };
        match AssertUnwindSafe(request).catch_unwind().await {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for (count, caller) in callers {
                    let mut theirs: Vec<_> = answers.by_ref().take(count).collect();
                    theirs.resize_with(count, K::Operation::unanswered);
                    // A dropped caller needs no answer.
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

/// Ends the request for the bound of the lane.
///
/// A carrier that does not end dies with its runtime. Then the queued batches are answered as
/// unsent, so no caller waits in vain.
impl<K: Kind> Drop for Carrier<K> {
    fn drop(&mut self) {
        let unsent = {
            let mut state = self.lane.state.lock();
            state.under_way.remove(&self.number);
            if self.ended { VecDeque::new() } else { std::mem::take(&mut state.queue) }
        };
        for batch in unsent {
            let answers = batch.operations.iter().map(|_| K::Operation::unsent()).collect();
            let _ = batch.caller.send(Reply::Answers(answers));
        }
        self.lane.send_queued();
    }
}
