//! Processors: they hold shards, poll for events, and deliver them to handlers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use txn_core::Domain;
use txn_lock::backoff::Backoff;
use txn_lock::{LockConfig, LockService};

use crate::config::ProcessorConfig;
use crate::error::{OutboxError, Result};
use crate::figures::{Counters, Figures};
use crate::processing::balance;
use crate::processing::inner::Inner;
use crate::processing::lane::{self, Start};
use crate::processing::queue_scheduler::QueueScheduler;
use crate::processing::shards::Shards;
use crate::processing::stalls;
use crate::processing::topics::Topics;
use crate::processing::work_limit::WorkLimit;
use crate::queue::name::QueueName;
use crate::queue::shard::{MOST_SHARDS, Shard};
use crate::queue::source::{Discovered, EventSource};

/// The first pause after a poll that found events.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// A running processor. A dropped processor stops in the background.
///
/// The processor then starts no further event, ends the current ones, and releases its shards.
#[derive(Debug)]
#[must_use = "a processor ends when its handle is dropped"]
pub struct Processor {
    inner: Arc<Inner>,
    stop: DropGuard,
}

impl Processor {
    /// Starts a processor of a source of events.
    ///
    /// The domain has the locks of the shards and the transactions of the handlers. Any number of
    /// processors may run in any number of processes. Live processors of a topic divide its shards,
    /// so that only one of them handles an event at a time.
    ///
    /// # Errors
    /// [`OutboxError::InvalidConfig`], [`OutboxError::InvalidName`] of a topic, or an error of the
    /// engine.
    pub async fn start(
        domain: &Domain,
        source: Arc<dyn EventSource>,
        config: ProcessorConfig,
        topics: Topics,
    ) -> Result<Self> {
        config.check(source.shards())?;
        topics.check()?;
        if source.shards() == 0 || source.shards() > MOST_SHARDS {
            return Err(OutboxError::InvalidConfig("the shards are not between 1 and 256"));
        }
        let locks = LockService::open(
            domain,
            LockConfig::default()
                .with_lease(config.lease)
                .with_longest_pause(config.lease.min(Duration::from_millis(250)))
                .with_heartbeat(config.heartbeat),
        )
        .await?;
        let stop = CancellationToken::new();
        let shards = Arc::new(Shards::default());
        let inner = Arc::new(Inner {
            domain: domain.clone(),
            listener: source.local_wakeups().listen(shards.clone()),
            scheduler: QueueScheduler::new(domain.config().shared_clock()),
            source,
            work_limit: WorkLimit::new(config.concurrency),
            config,
            topics,
            locks,
            shards,
            begun: AtomicUsize::new(0),
            running: Arc::default(),
            suspects: tokio::sync::Mutex::default(),
            counters: Counters::new(domain.config().clock()),
            tasks: TaskTracker::new(),
            stop: stop.clone(),
        });
        inner.tasks.spawn(balance::run(inner.clone()));
        inner.tasks.spawn(poll_until_stopped(inner.clone()));
        inner.config.heartbeat.spawn(&inner.tasks, stalls::watch(inner.clone()));
        Ok(Self { inner, stop: stop.drop_guard() })
    }

    /// The shards that the processor holds now.
    #[must_use]
    pub fn shards(&self) -> BTreeSet<Shard> {
        self.inner.shards.held()
    }

    /// The counters since the start.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.inner.counters.figures(self.inner.clock())
    }

    /// A handle to the counters that outlives the processor.
    ///
    /// Events that end during the stop count, too.
    pub fn last_figures(&self) -> impl Fn() -> Figures + Send + Sync + use<> {
        let inner = self.inner.clone();
        move || inner.counters.figures(inner.clock())
    }

    /// Stops the processor, and releases its shards. Waits for at most `deadline`.
    ///
    /// The processor starts no further event, and waits for the current ones. Returns whether all
    /// events have ended and all shards are released. Other processors take the remaining shards
    /// over after a lease. A handler that has not ended by then is dropped, and its later writes
    /// fail.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the processor still stops, and releases its shards in the
    /// background.
    pub async fn stop(self, deadline: Duration) -> bool {
        let Self { inner, stop } = self;
        stop.disarm().cancel();
        inner.tasks.close();
        let until = inner.now() + deadline;
        let ended = tokio::select! {
            biased;
            () = inner.tasks.wait() => true,
            () = inner.clock().sleep(deadline) => false,
        };
        inner.locks.shutdown(until.saturating_sub(inner.now())).await && ended
    }
}

/// Polls for events in the held shards until the processor stops.
async fn poll_until_stopped(this: Arc<Inner>) {
    let mut next_poll = Duration::ZERO;
    let mut pause = Backoff::new(FIRST_PAUSE, this.config.delay);
    // The numbers of queues that commits of this process passed on, and of begun batches of events.
    // Earlier polls count less.
    let (mut notified, mut begun) = (0, 0);
    while !this.stop.is_cancelled() {
        // The next poll finds shards that arrive after this line.
        let has_changed = this.shards.changed();
        let held = this.shards.held();
        let mut woken = this.listener.take();
        notified += woken.len();
        begun += this.begun.swap(0, Ordering::AcqRel);
        // While commits of this process report most of the work, polls in quick succession would
        // mostly find queues that a commit reports anyway.
        if begun > 2 * notified {
            (notified, begun) = (0, 0);
            pause = Backoff::new(FIRST_PAUSE, this.config.delay);
            next_poll = next_poll.min(this.now() + FIRST_PAUSE);
        }
        let is_due = has_changed || this.now() >= next_poll;
        let mut polled = Discovered::default();
        if is_due && !held.is_empty() {
            polled = discover(&this, &held).await;
            // Commits during the poll pass on queues that the poll found, too. Their events need no
            // read.
            for (name, events) in this.listener.take() {
                notified += 1;
                woken.entry(name).or_default().extend(events);
            }
        }
        let leaves_some = polled.leaves_some;
        polled.queues.retain(|name| !woken.contains_key(name));
        let mut found: Vec<(QueueName, Start)> =
            woken.into_iter().map(|(name, events)| (name, Start::Notified(events))).collect();
        found.extend(this.scheduler.due().into_iter().map(|name| (name, Start::Due)));
        found.extend(polled.queues.into_iter().map(|name| (name, Start::Polled)));
        if is_due {
            (notified, begun) = (notified / 2, begun / 2);
            let pause = pause.next(this.domain.config().entropy());
            next_poll = this.now() + if leaves_some { Duration::ZERO } else { pause };
        }
        for (name, start) in found {
            if !start_queue(&this, name, start).await {
                break;
            }
        }
        let next = this.scheduler.next_due().map_or(next_poll, |due| due.min(next_poll));
        let left = next.saturating_sub(this.now());
        tokio::select! {
            biased;
            () = this.stop.cancelled() => {}
            () = this.listener.woken() => {}
            () = this.clock().sleep(left) => {}
        }
    }
}

/// Asks the source for the queues of these shards. An error is logged, and finds nothing.
async fn discover(this: &Inner, held: &BTreeSet<Shard>) -> Discovered {
    this.source.discover(held).await.unwrap_or_else(|error| {
        let source = this.source.name();
        tracing::warn!(source, %error, "could not poll for events");
        Discovered::default()
    })
}

/// Starts the work on a queue after a permit is free. Returns `false` at a stop.
///
/// A worker that has the queue already reads the queue again.
async fn start_queue(this: &Arc<Inner>, name: QueueName, start: Start) -> bool {
    if !this.scheduler.may_start(&name) {
        return true;
    }
    let permit = tokio::select! {
        biased;
        () = this.stop.cancelled() => return false,
        permit = this.work_limit.acquire() => permit,
    };
    let Some(permit) = permit else { return false };
    let Some(guard) = this.scheduler.try_start(&name, this.config.longest_pause) else {
        return true;
    };
    let inner = this.clone();
    let run = async move {
        let _permit = permit;
        lane::run(&inner, guard, start).await;
    };
    this.tasks.spawn(run);
    true
}
