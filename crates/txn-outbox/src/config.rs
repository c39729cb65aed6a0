//! Settings of the outbox and of processors.

use std::collections::BTreeSet;
use std::time::Duration;

use txn_lock::Heartbeat;

use crate::error::{OutboxError, Result};
use crate::shard::MOST_SHARDS;

/// Settings of an [`Outbox`](crate::Outbox). Clock, randomness and the name of the process are those of the domain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutboxConfig {
    /// How many shards each topic of a new outbox has: as many processors can share its work. One that exists keeps its number.
    /// Default 16.
    pub shards: u16,
    /// Most events of one queue that may wait; beyond, `emit` refuses. Default 10,000.
    pub max_backlog: u64,
    /// Most bytes of a payload as JSON. Default 256 KiB.
    pub max_payload: usize,
}

impl Default for OutboxConfig {
    fn default() -> Self {
        Self { shards: 16, max_backlog: 10_000, max_payload: 256 << 10 }
    }
}

/// Which shards a processor takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Assignment {
    /// Its fair share of each topic that it knows, by how many processors live that know it.
    #[default]
    Shared,
    /// These of each topic that it knows, by their numbers, as far as no other holds them.
    Static(BTreeSet<u16>),
}

/// What becomes of the queue of an event that is set aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfterDeath {
    /// It goes on with the next event. Tried again, the dead one comes behind all that wait.
    #[default]
    GoesOn,
    /// It waits until the dead one is tried again, in its old place, or dropped.
    Waits,
}

/// Settings of a [`Processor`](crate::Processor).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessorConfig {
    /// How long a processor may show no sign of life until others take its shards over. Default 10 s.
    pub lease: Duration,
    /// How often processors look who lives and share the shards out. Default a third of the lease.
    pub balance: Option<Duration>,
    /// Which shards it takes. Default its share.
    pub assignment: Assignment,
    /// The longest pause between two looks for events of other processes; it is shorter behind a look that found some.
    /// Those of its own process it begins at once. Default 1 s.
    pub delay: Duration,
    /// How many queues are worked on at once. Default 64.
    pub concurrency: usize,
    /// How many events of a queue are read at once. Default 50.
    pub batch: usize,
    /// How long a handler may take; then it is dropped, and has failed. A handler that blocks its thread cannot be dropped: it
    /// has failed once this and a lease are over, and its shard goes to another processor. Default 60 s.
    pub limit: Duration,
    /// How often an event may fail before it is set aside. Default 8.
    pub max_failures: u32,
    /// The first pause before an event is tried again that failed, or that waits for something that is down; it doubles.
    /// Default 200 ms.
    pub first_pause: Duration,
    /// The longest such pause. Default one minute.
    pub longest_pause: Duration,
    /// How often handling an event may begin and not end until it is set aside: the process died, or lost the shard. The first
    /// time is not counted, because noting each begin would cost a write for each event; an event that kills its process is
    /// set aside after this many processes and one more. Default 2.
    pub max_unfinished: u32,
    /// What becomes of the queue of an event that is set aside. Default: it goes on.
    pub after_death: AfterDeath,
    /// Where the heartbeat runs. Default: in a thread of its own.
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
            after_death: AfterDeath::GoesOn,
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
    /// Sets [`ProcessorConfig::after_death`].
    with_after_death: after_death: AfterDeath;
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
        if self.max_backlog == 0 || self.max_payload == 0 {
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
