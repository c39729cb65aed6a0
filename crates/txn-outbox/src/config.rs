//! Settings of the outbox and of processors.

use std::collections::BTreeSet;
use std::time::Duration;

use txn_lock::Heartbeat;

use crate::error::{OutboxError, Result};
use crate::queue::shard::MOST_SHARDS;

/// Settings of an [`Outbox`](crate::Outbox).
///
/// The domain supplies the clock, the randomness and the name of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutboxConfig {
    /// The number of shards of each topic in a new outbox.
    ///
    /// At most this many processors share the work of a topic. An existing outbox keeps its number.
    /// Default: 16.
    pub shards: u16,
    /// The maximum number of waiting events of one queue.
    ///
    /// `emit` refuses further events. Default: 10,000.
    pub max_backlog: u64,
    /// The maximum size of a payload as JSON. Default: 256 KiB.
    pub max_payload: usize,
    /// The longest time from the emit of a timer to its moment. Default: 3,650 days.
    pub max_delay: Duration,
}

impl Default for OutboxConfig {
    fn default() -> Self {
        let max_delay = Duration::from_secs(3_650 * 86_400);
        Self { shards: 16, max_backlog: 10_000, max_payload: 256 << 10, max_delay }
    }
}

/// The shards that a processor takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Assignment {
    /// An equal share of each topic among its live processors.
    #[default]
    Shared,
    /// The shards with these numbers, unless another processor holds them.
    Static(BTreeSet<u16>),
}

/// The state of a queue after an event became a dead letter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfterDeadLetter {
    /// The queue continues with the next event.
    ///
    /// A dead letter that is retried goes to the end of the queue.
    #[default]
    Continue,
    /// The queue waits until the dead letter is retried or discarded.
    ///
    /// A retry uses the old position.
    Wait,
}

/// Settings of a [`Processor`](crate::Processor).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessorConfig {
    /// How long a processor keeps its shards without a heartbeat. Default: 10 s.
    pub lease: Duration,
    /// How often a processor balances its shards. Default: a third of the lease.
    pub balance: Option<Duration>,
    /// The shards that the processor takes. Default: an equal share.
    pub assignment: Assignment,
    /// The longest pause between two polls for events of other processes.
    ///
    /// Events of its own process wake the processor at once. The pause is shorter while most events
    /// are those of other processes. Default: 1 s.
    pub delay: Duration,
    /// The maximum number of queues in work at the same time. Default: 64.
    pub concurrency: usize,
    /// The number of events of a queue per read. Default: 50.
    pub batch: usize,
    /// How long a handler may take. After this time the handler is dropped and has failed.
    ///
    /// A handler that blocks its thread cannot be dropped. The handler then has failed after this
    /// limit and one lease, and its shard goes to another processor. Default: 60 s.
    pub limit: Duration,
    /// The number of failures after which an event becomes a dead letter. Default: 8.
    pub max_failures: u32,
    /// The first pause before the retry of an event. Pauses double.
    ///
    /// The same pauses apply to failed events and to events that wait out an outage. Default: 200
    /// ms.
    pub first_pause: Duration,
    /// The longest pause before a retry. Default: one minute.
    pub longest_pause: Duration,
    /// The number of unfinished starts that makes a dead letter.
    ///
    /// A start is unfinished if the process dies or loses the shard. The first start of an event is
    /// not noted, because the note would cost one write per event. An event that kills its process
    /// therefore becomes a dead letter after one more process than this number. Default: 2.
    pub max_unfinished: u32,
    /// The state of a queue after its event became a dead letter. Default: the queue continues.
    pub after_dead_letter: AfterDeadLetter,
    /// The thread of the heartbeat. Default: a thread of its own.
    pub heartbeat: Heartbeat,
}

impl Default for ProcessorConfig {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(10),
            balance: None,
            assignment: Assignment::Shared,
            delay: Duration::from_secs(1),
            concurrency: 64,
            batch: 50,
            limit: Duration::from_secs(60),
            max_failures: 8,
            first_pause: Duration::from_millis(200),
            longest_pause: Duration::from_secs(60),
            max_unfinished: 2,
            after_dead_letter: AfterDeadLetter::Continue,
            heartbeat: Heartbeat::default(),
        }
    }
}

macro_rules! setters {
    ($config:ident: $($(#[$doc:meta])* $name:ident: $field:ident: $type:ty;)*) => {
        impl $config {$(
            $(#[$doc])*
            #[must_use]
            pub fn $name(mut self, $field: $type) -> Self {
                self.$field = $field;
                self
            }
        )*}
    };
}

#[cfg(feature = "http")]
pub(crate) use setters;

setters! { OutboxConfig:
    /// Sets [`OutboxConfig::shards`].
    with_shards: shards: u16;
    /// Sets [`OutboxConfig::max_backlog`].
    with_max_backlog: max_backlog: u64;
    /// Sets [`OutboxConfig::max_payload`].
    with_max_payload: max_payload: usize;
    /// Sets [`OutboxConfig::max_delay`].
    with_max_delay: max_delay: Duration;
}

setters! { ProcessorConfig:
    /// Sets [`ProcessorConfig::lease`].
    with_lease: lease: Duration;
    /// Sets [`ProcessorConfig::balance`].
    with_balance: balance: Option<Duration>;
    /// Sets [`ProcessorConfig::assignment`].
    with_assignment: assignment: Assignment;
    /// Sets [`ProcessorConfig::delay`].
    with_delay: delay: Duration;
    /// Sets [`ProcessorConfig::concurrency`].
    with_concurrency: concurrency: usize;
    /// Sets [`ProcessorConfig::batch`].
    with_batch: batch: usize;
    /// Sets [`ProcessorConfig::limit`].
    with_limit: limit: Duration;
    /// Sets [`ProcessorConfig::max_failures`].
    with_max_failures: max_failures: u32;
    /// Sets [`ProcessorConfig::first_pause`].
    with_first_pause: first_pause: Duration;
    /// Sets [`ProcessorConfig::longest_pause`].
    with_longest_pause: longest_pause: Duration;
    /// Sets [`ProcessorConfig::after_dead_letter`].
    with_after_dead_letter: after_dead_letter: AfterDeadLetter;
    /// Sets [`ProcessorConfig::max_unfinished`].
    with_max_unfinished: max_unfinished: u32;
    /// Sets [`ProcessorConfig::heartbeat`].
    with_heartbeat: heartbeat: Heartbeat;
}

impl OutboxConfig {
    pub(crate) fn check(&self) -> Result<()> {
        if self.shards == 0 || self.shards > MOST_SHARDS {
            return Err(OutboxError::InvalidConfig("the shards are not between 1 and 256"));
        }
        if self.max_backlog == 0 || self.max_payload == 0 || self.max_delay.is_zero() {
            return Err(OutboxError::InvalidConfig("a bound is zero"));
        }
        Ok(())
    }
}

impl ProcessorConfig {
    pub(crate) fn check(&self, shards: u16) -> Result<()> {
        let refuse = |why| Err(OutboxError::InvalidConfig(why));
        if self.lease < Duration::from_millis(100) || self.lease > Duration::from_secs(3600) {
            return refuse("the lease is not between 100 ms and an hour");
        }
        let pauses = [self.delay, self.limit, self.first_pause, self.longest_pause, self.pace()];
        if pauses.contains(&Duration::ZERO) {
            return refuse("a pause is zero");
        }
        let counts = [self.max_failures, self.max_unfinished];
        if self.concurrency == 0 || self.batch == 0 || counts.contains(&0) {
            return refuse("a bound is zero");
        }
        match &self.assignment {
            Assignment::Static(own) if own.iter().any(|shard| *shard >= shards) => {
                refuse("a shard is assigned that the outbox does not have")
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn pace(&self) -> Duration {
        self.balance.unwrap_or(self.lease / 3)
    }
}
