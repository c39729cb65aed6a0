//! The worker of one queue, called a lane.
//!
//! A lane handles the events one after the other, until the queue is empty, an event fails, or the
//! shard is lost.

use std::mem;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::MutexGuard;
use txn_core::Options;
use txn_lock::backoff::Backoff;
use txn_lock::instance::wall_ms;

use crate::config::AfterDeadLetter;
use crate::error::{OutboxError, Result};
use crate::handler::{Delivery, Failure, FailureKind, Taken};
use crate::processing::inner::Inner;
use crate::processing::queue_scheduler::QueueGuard;
use crate::processing::running::timed;
use crate::processing::shards::Lanes;
use crate::queue::event::Event;
use crate::queue::name::QueueName;
use crate::queue::source::{Claim, FailureEffect, RecordedFailure};

/// The number of retries before the lane defers its queue.
const MOST_RETRIES: usize = 6;

/// The maximum number of proven queues per shard. Further queues note their starts.
const MOST_PROVEN: usize = 100_000;

/// The longest pause before an event that is not due.
///
/// The wall clock may be set in the meantime, so the queue is read again then.
const LONGEST_TIMER: Duration = Duration::from_secs(3_600);

/// The maximum number of characters of a stored failure text.
const MOST_ERROR: usize = 2_000;

/// The result of one event.
pub(crate) enum DeliveryOutcome {
    /// The event is handled or set aside, and the next event follows.
    Next,
    /// The event is handled. The queue was empty then.
    QueueEmpty,
    /// The queue has changed, or the shard is lost. A read of the queue shows its state.
    Stale,
    /// The queue is deferred for this time.
    Deferred(Duration),
    /// The event waits out an outage. Pauses grow, and last at least this long.
    Outage(Duration),
    /// The queue waits. The wait is for an operator, for another processor, or for a later poll.
    Stopped,
}

/// How the work on a queue ended.
enum WorkOutcome {
    /// Nothing is left to do here.
    Done,
    /// The queue is deferred for this time.
    Deferred(Duration),
    /// Events are left, and other queues wait for a permit.
    Yielded,
}

/// Why the work on a queue starts.
pub(crate) enum Start {
    /// A commit passed on these new events, or the queue's name. The commit is one of this process.
    /// The list is empty for a name.
    Notified(Vec<Event>),
    /// A poll found the queue.
    Polled,
    /// The pause of the queue is over.
    Due,
}

/// Works on a queue until it is empty or deferred.
///
/// A queue with a constant backlog releases its permit after a batch if other queues wait.
pub(crate) async fn run(this: &Arc<Inner>, mut guard: QueueGuard, mut start: Start) {
    loop {
        match work(this, &guard, mem::replace(&mut start, Start::Due)).await {
            WorkOutcome::Deferred(pause) => return guard.defer(pause),
            WorkOutcome::Yielded => {
                guard.defer(Duration::ZERO);
                // The queue comes after the waiting queues.
                return this.listener.wake();
            }
            WorkOutcome::Done if guard.try_finish(!this.stop.is_cancelled()) => return,
            // Events arrived in the meantime.
            WorkOutcome::Done => {}
        }
    }
}

fn is_over(this: &Inner, claim: &Claim, lanes: &Lanes) -> bool {
    this.stop.is_cancelled() || lanes.draining.is_cancelled() || claim.is_lost()
}

/// Returns the first new events without a gap.
///
/// These events need no read of the queue.
///
/// Another process may have handled these events, or may have written earlier ones. Only a handler
/// whose transaction takes the event notices this.
fn contiguous_events(this: &Inner, name: &QueueName, mut events: Vec<Event>) -> Vec<Event> {
    if this.topics.batch_handler(name.topic()).is_none() {
        return Vec::new();
    }
    events.sort_by_key(|event| event.sequence);
    let mut next = events.first().map_or(0, |event| event.sequence);
    events.truncate(this.config.batch);
    let is_next = |event: &Event| mem::replace(&mut next, event.sequence + 1) == event.sequence;
    events.into_iter().take_while(is_next).collect()
}

/// Reads the next events of a queue. Returns a pause for the queue if the read failed.
async fn read(this: &Inner, name: &QueueName) -> Result<Vec<Event>, Duration> {
    this.source.next(name, this.config.batch).await.map_err(|error| {
        tracing::warn!(queue = %name, %error, "a queue is deferred");
        match error.is_transient_or_unknown() {
            true => this.config.delay,
            false => this.config.longest_pause,
        }
    })
}

/// Returns how the work on a queue ends after an event. `None` if the next event follows.
fn work_outcome(
    this: &Inner,
    guard: &QueueGuard,
    outcome: &DeliveryOutcome,
) -> Option<WorkOutcome> {
    match outcome {
        DeliveryOutcome::Next => {
            guard.reset_waits();
            None
        }
        DeliveryOutcome::QueueEmpty => {
            guard.reset_waits();
            Some(WorkOutcome::Done)
        }
        DeliveryOutcome::Stale => Some(WorkOutcome::Deferred(this.config.delay)),
        DeliveryOutcome::Deferred(pause) => Some(WorkOutcome::Deferred(*pause)),
        DeliveryOutcome::Outage(least) => {
            Some(WorkOutcome::Deferred(outage_pause(this, guard).max(*least)))
        }
        DeliveryOutcome::Stopped => Some(WorkOutcome::Done),
    }
}

/// Handles the waiting events in batches, while this process holds their shard.
async fn work(this: &Inner, guard: &QueueGuard, start: Start) -> WorkOutcome {
    let name = guard.name();
    let mut is_polled = matches!(start, Start::Polled);
    let mut passed_on = match start {
        Start::Notified(events) => contiguous_events(this, name, events),
        Start::Polled | Start::Due => Vec::new(),
    };
    while !this.stop.is_cancelled() {
        // The read below must follow the claim of the shard: an earlier holder may have written
        // before the claim.
        let arrivals = this.shards.arrivals();
        let is_passed_on = !passed_on.is_empty();
        let events = match is_passed_on {
            true => Ok(mem::take(&mut passed_on)),
            false => read(this, name).await,
        };
        let events = match events {
            Ok(events) if events.is_empty() => return WorkOutcome::Done,
            Ok(events) => events,
            Err(pause) => return WorkOutcome::Deferred(pause),
        };
        this.count_begun(mem::take(&mut is_polled));
        let shard = events.first().map(|event| event.shard(this.source.shards()));
        let claimed = shard.and_then(|shard| Some((this.shards.claim(&shard, arrivals)?, shard)));
        let Some(((held, lanes), shard)) = claimed else { return WorkOutcome::Done };
        let claim = Claim { shard, held };
        let _running = lanes.tasks.token();
        let one_by_one = match handle_batch(this, &claim, &lanes, &events).await {
            BatchOutcome::Handled(taken) => {
                guard.reset_waits();
                if taken.waiting == Some(0) {
                    return WorkOutcome::Done;
                }
                Vec::new()
            }
            BatchOutcome::ShardLost => return WorkOutcome::Done,
            BatchOutcome::OneByOne => events,
        };
        for event in one_by_one {
            if is_over(this, &claim, &lanes) {
                return WorkOutcome::Done;
            }
            match handle(this, &claim, &lanes, event).await {
                // The next round reads the queue.
                DeliveryOutcome::Stale if is_passed_on => break,
                outcome => {
                    if let Some(outcome) = work_outcome(this, guard, &outcome) {
                        return outcome;
                    }
                }
            }
        }
        if this.work_limit.has_waiters() {
            return WorkOutcome::Yielded;
        }
    }
    WorkOutcome::Done
}

/// The result of a batch in one transaction.
enum BatchOutcome {
    /// All events are handled.
    Handled(Taken),
    /// The shard was lost in the meantime.
    ShardLost,
    /// No event is handled, as far as this process knows. Each event runs on its own.
    OneByOne,
}

/// Handles a batch in one transaction.
///
/// The handler of the topic must allow this, and no event of the batch may have failed before.
async fn handle_batch(
    this: &Inner,
    claim: &Claim,
    lanes: &Lanes,
    events: &[Event],
) -> BatchOutcome {
    let [first, _, ..] = events else { return BatchOutcome::OneByOne };
    let handler = this.topics.batch_handler(first.queue.topic());
    let Some(handler) = handler.filter(|_| this.source.takes_several()) else {
        return BatchOutcome::OneByOne;
    };
    let is_sound = |event: &Event| {
        event.failures == 0 && event.unfit.is_none() && due_in(this, event).is_none()
    };
    if !events.iter().all(|event| is_sound(event) && !is_suspect(this, claim, lanes, event)) {
        return BatchOutcome::OneByOne;
    }
    let options = Options::default();
    let transaction = this.domain.run::<_, Failure, _>(&options, async |tx| {
        claim.check(tx).await?;
        let mut waiting = None;
        for event in events {
            waiting = this.source.take(tx, event).await?;
            handler.handle(tx, event).await?;
        }
        Ok(Taken { waiting })
    });
    let taken = match bounded(this, claim, first, transaction).await {
        Some(Ok(committed)) => committed.value,
        Some(Err(_)) => return BatchOutcome::OneByOne,
        None => return BatchOutcome::ShardLost,
    };
    events.iter().for_each(|event| this.counters.handled(event, &this.domain));
    for event in events {
        if let Err(error) = with_retries(this, || this.source.taken(claim, event)).await {
            tracing::warn!(event = event.id, %error, "a handled event is removed later");
        }
    }
    BatchOutcome::Handled(taken)
}

/// Delivers one event, and stores the result.
async fn handle(this: &Inner, claim: &Claim, lanes: &Lanes, event: Event) -> DeliveryOutcome {
    let name = event.queue.clone();
    if let Some(why) = event.unfit.clone() {
        return failed(this, claim, &event, Failure::permanent(&*why)).await;
    }
    if let Some(pause) = due_in(this, &event) {
        return postponed(this, claim, &event, pause).await;
    }
    let exclusive = match begin(this, claim, lanes, &event).await {
        Ok(exclusive) => exclusive,
        Err(outcome) => return outcome,
    };
    let outcome = handle_begun(this, claim, event).await;
    drop(exclusive);
    if !claim.is_lost() {
        let mut proven = lanes.proven.lock();
        if proven.len() < MOST_PROVEN {
            proven.insert(name);
        }
    }
    outcome
}

/// Leaves an event that is not due to a later poll.
///
/// Otherwise the processor remembers the queue until then.
async fn postponed(this: &Inner, claim: &Claim, event: &Event, pause: Duration) -> DeliveryOutcome {
    match with_retries(this, || this.source.postpone(claim, event)).await {
        Ok(true) => DeliveryOutcome::Stopped,
        Ok(false) => DeliveryOutcome::Deferred(pause),
        Err(OutboxError::Lock(_) | OutboxError::NotNext(_)) => DeliveryOutcome::Stale,
        Err(error) => {
            tracing::warn!(event = event.id, %error, "an event could not be postponed");
            DeliveryOutcome::Deferred(pause)
        }
    }
}

/// The time until the event is due; `None` for a due event.
fn due_in(this: &Inner, event: &Event) -> Option<Duration> {
    let left = event.not_before_ms?.saturating_sub(wall_ms(&this.domain));
    (left > 0).then(|| Duration::from_millis(left).min(LONGEST_TIMER))
}

/// Whether a process may have died while it handled the event.
fn is_suspect(this: &Inner, claim: &Claim, lanes: &Lanes, event: &Event) -> bool {
    let drift = u64::try_from(this.domain.config().max_drift().as_millis()).unwrap_or(u64::MAX);
    let may_have_begun = event.unfinished > 0 || claim.may_have_begun(event, drift);
    may_have_begun && !lanes.proven.lock().contains(&event.queue)
}

/// Notes the start of a suspect event.
///
/// A process may have died over such an event. A noted event without an end runs alone, and becomes
/// a dead letter after too many starts.
async fn begin<'a>(
    this: &'a Inner,
    claim: &Claim,
    lanes: &Lanes,
    event: &Event,
) -> Result<Option<MutexGuard<'a, ()>>, DeliveryOutcome> {
    if !is_suspect(this, claim, lanes, event) {
        return Ok(None);
    }
    if event.unfinished >= this.config.max_unfinished {
        let times = event.unfinished;
        let why = format!(
            "the event was started {times} times without an end: the process died, or lost the shard"
        );
        return Err(failed(this, claim, event, Failure::permanent(why)).await);
    }
    let mut exclusive = None;
    if event.unfinished > 0 {
        exclusive = Some(
            this.suspects.try_lock().map_err(|_| DeliveryOutcome::Deferred(this.config.delay))?,
        );
    }
    match with_retries(this, || this.source.begin(claim, event)).await {
        Ok(()) => Ok(exclusive),
        Err(OutboxError::Lock(_) | OutboxError::NotNext(_)) => Err(DeliveryOutcome::Stale),
        Err(error) => {
            tracing::warn!(event = event.id, %error, "the start of an event could not be noted");
            Err(DeliveryOutcome::Outage(Duration::ZERO))
        }
    }
}

/// Delivers one event, after any note of its start.
async fn handle_begun(this: &Inner, claim: &Claim, event: Event) -> DeliveryOutcome {
    let delivery = Delivery {
        event: event.clone(),
        claim: claim.clone(),
        domain: this.domain.clone(),
        source: this.source.clone(),
        limit: this.config.limit,
        taken: Arc::new(OnceLock::new()),
    };
    let taken = delivery.taken.clone();
    // A processor holds only shards of topics that have a handler.
    let Some(handler) = this.topics.handler(event.queue.topic()) else {
        return DeliveryOutcome::Stopped;
    };
    let Some(handled) = bounded(this, claim, &event, handler.handle(delivery)).await else {
        return DeliveryOutcome::Stopped;
    };
    let failure = match handled {
        // The transaction has committed, so the result of the handler does not matter.
        _ if let Some(taken) = taken.get() => {
            this.counters.handled(&event, &this.domain);
            return match with_retries(this, || this.source.taken(claim, &event)).await {
                Ok(()) if taken.waiting == Some(0) => DeliveryOutcome::QueueEmpty,
                Ok(()) => DeliveryOutcome::Next,
                Err(error) => {
                    tracing::warn!(event = event.id, %error, "a handled event is removed later");
                    DeliveryOutcome::Deferred(this.config.delay)
                }
            };
        }
        Ok(()) => match with_retries(this, || this.source.done(claim, &event)).await {
            Ok(()) => {
                this.counters.handled(&event, &this.domain);
                return DeliveryOutcome::Next;
            }
            Err(error) => {
                tracing::warn!(event = event.id, %error, "an event was handled and may be delivered again");
                Failure::from(error)
            }
        },
        Err(failure) => failure,
    };
    failed(this, claim, &event, failure).await
}

/// Runs a handler up to its limit. Returns `None` if the shard was lost.
///
/// A panic is a failure.
async fn bounded<T>(
    this: &Inner,
    claim: &Claim,
    event: &Event,
    handler: impl Future<Output = Result<T, Failure>>,
) -> Option<Result<T, Failure>> {
    let limit = this.config.limit;
    let _run = this.running.register(this.now(), claim, event);
    let handling = timed(this.clock(), &this.counters, event.queue.topic(), handler);
    tokio::select! {
        biased;
        () = claim.held.lost() => None,
        handled = AssertUnwindSafe(handling).catch_unwind() => {
            Some(handled.unwrap_or_else(|panic| Err(panicked(&*panic))))
        }
        () = this.clock().sleep(limit) => {
            Some(Err(Failure::counted(format!("the handler did not end within {limit:?}"))))
        }
    }
}

pub(crate) async fn failed(
    this: &Inner,
    claim: &Claim,
    event: &Event,
    failure: Failure,
) -> DeliveryOutcome {
    let effect = match failure.kind {
        FailureKind::Superseded => return DeliveryOutcome::Stale,
        FailureKind::Transient => {
            this.counters.waited();
            tracing::debug!(event = event.id, error = %failure, "an event is tried again later");
            return DeliveryOutcome::Outage(failure.pause);
        }
        FailureKind::Permanent => FailureEffect::SetAside(this.config.after_dead_letter),
        FailureKind::Counted if event.failures + 1 >= this.config.max_failures => {
            FailureEffect::SetAside(this.config.after_dead_letter)
        }
        FailureKind::Counted => FailureEffect::Retry,
    };
    let why: String = failure.to_string().chars().take(MOST_ERROR).collect();
    this.counters.failed();
    match with_retries(this, || this.source.failed(claim, event, &why, effect)).await {
        Ok(RecordedFailure::Failed(failures)) => {
            tracing::info!(event = event.id, failures, "an event is tried again later");
            DeliveryOutcome::Deferred(pause(this, failures).max(failure.pause))
        }
        Ok(RecordedFailure::SetAside) => {
            tracing::warn!(event = event.id, "an event is set aside");
            this.counters.set_aside();
            match this.config.after_dead_letter {
                AfterDeadLetter::Continue => DeliveryOutcome::Next,
                AfterDeadLetter::Wait => DeliveryOutcome::Stopped,
            }
        }
        Ok(RecordedFailure::AlreadyHandled) => DeliveryOutcome::Next,
        Err(OutboxError::Lock(_) | OutboxError::NotNext(_)) => DeliveryOutcome::Stale,
        Err(error) => {
            tracing::warn!(event = event.id, %error, "a failure could not be noted");
            DeliveryOutcome::Outage(Duration::ZERO)
        }
    }
}

/// The pause of a queue that waits out an outage.
fn outage_pause(this: &Inner, guard: &QueueGuard) -> Duration {
    let waits = guard.count_wait();
    // Logs only the 8th, 16th, 32nd … wait, so that an outage does not fill the log.
    if waits >= 8 && waits.is_power_of_two() {
        let queue = guard.name();
        tracing::warn!(%queue, waits, "the first event of a queue waits for an outage to end");
    }
    pause(this, waits)
}

/// The pause before a retry, by the number of failures or waits.
fn pause(this: &Inner, failures: u32) -> Duration {
    let config = &this.config;
    let whole = config.first_pause.saturating_mul(1 << failures.saturating_sub(1).min(16));
    let whole = whole.min(config.longest_pause);
    Backoff::new(whole, whole).next(this.domain.config().entropy())
}

/// Retries a transient error of the source.
async fn with_retries<T, F, R>(this: &Inner, request: F) -> Result<T>
where
    F: Fn() -> R,
    R: Future<Output = Result<T>>,
{
    let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(1));
    let mut retries = 0;
    loop {
        match request().await {
            Err(error)
                if error.is_transient_or_unknown()
                    && retries < MOST_RETRIES
                    && !this.stop.is_cancelled() =>
            {
                retries += 1;
                this.clock().sleep(backoff.next(this.domain.config().entropy())).await;
            }
            done => return done,
        }
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    Failure::counted(format!("the handler panicked: {}", text.unwrap_or_default()))
}
