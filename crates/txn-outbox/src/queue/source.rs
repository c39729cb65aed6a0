//! Sources of events.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use async_trait::async_trait;
use serde::Serialize;
use txn_core::Transaction;
use txn_lock::Held;

use crate::error::Result;
use crate::queue::event::{DeadLetter, DeadLetters, Event};
use crate::queue::local_wakeups::LocalWakeups;
use crate::queue::name::QueueName;
use crate::queue::shard::Shard;

/// A source of events: an [`Outbox`](crate::Outbox), a table, or a custom source.
///
/// Processors ask the source for events, and report the results.
///
/// A source returns the events of a queue in commit order, one after the other. The source returns
/// no event of an aborted transaction, and repeats each event until it is done or set aside. A
/// processor holds an exclusive [`Claim`] on a shard, and passes it to each write.
#[async_trait]
pub trait EventSource: fmt::Debug + Send + Sync + 'static {
    /// The name of the source within the domain, 1 to 100 bytes. Shard locks contain it.
    fn name(&self) -> &str;

    /// The number of shards of each topic, 1 to 256.
    fn shards(&self) -> u16;

    /// The local wake-ups of this process.
    fn local_wakeups(&self) -> &LocalWakeups;

    /// Reports a new claim, before the processor reads the shard.
    ///
    /// A source with its own tokens raises them in this call, so that the previous holder cannot
    /// write any more. After an error the processor releases the shard.
    ///
    /// # Errors
    /// Any error of the source.
    async fn claimed(&self, _claim: &Claim) -> Result<()> {
        Ok(())
    }

    /// Returns queues of these shards in which events may wait.
    ///
    /// [`EventSource::next`] decides whether events wait. The result may omit the latest events; a
    /// later call returns them.
    ///
    /// # Errors
    /// Store errors of [`OutboxError`](crate::OutboxError).
    async fn discover(&self, shards: &BTreeSet<Shard>) -> Result<Discovered>;

    /// Returns the next events of a queue, in order, at most `most`.
    ///
    /// Returns no event if the queue waits for a dead letter.
    ///
    /// # Errors
    /// [`OutboxError::NewerFormat`](crate::OutboxError::NewerFormat),
    /// [`OutboxError::Missing`](crate::OutboxError::Missing), or an error of the store.
    async fn next(&self, queue: &QueueName, most: usize) -> Result<Vec<Event>>;

    /// Hides the queue of an event from [`EventSource::discover`] for a time.
    ///
    /// The time ends shortly before [`Event::not_before_ms`].
    ///
    /// The processor calls this method for an event that is not due. Returns `false` if the source
    /// returns the queue all the same. The processor then remembers the queue in memory.
    ///
    /// # Errors
    /// As [`EventSource::done`].
    async fn postpone(&self, _claim: &Claim, _event: &Event) -> Result<bool> {
        Ok(false)
    }

    /// Notes the start of an event, if the claim still holds.
    ///
    /// [`Event::unfinished`] counts the start until the event is done or has failed. The processor
    /// calls this method before it delivers an event over which a process may have died. A source
    /// without such notes never sets these events aside.
    ///
    /// # Errors
    /// As [`EventSource::done`].
    async fn begin(&self, _claim: &Claim, _event: &Event) -> Result<()> {
        Ok(())
    }

    /// Notes that this transaction of the domain handles an event.
    ///
    /// The transaction has checked the claim. After its commit the event is never handled again.
    /// Returns the number of events that then wait in the queue, if the source knows the number.
    ///
    /// # Errors
    /// [`OutboxError::NotNext`](crate::OutboxError::NotNext) if the event was already handled;
    /// errors of the engine.
    async fn take(&self, tx: &Transaction, event: &Event) -> Result<Option<u64>>;

    /// Whether one transaction may take several events of a queue, in order.
    fn takes_several(&self) -> bool {
        false
    }

    /// Removes an event after its transaction committed.
    ///
    /// The queue continues only after this removal. If the removal fails, the next
    /// [`EventSource::next`] repeats it.
    ///
    /// # Errors
    /// Any error of the source.
    async fn taken(&self, claim: &Claim, event: &Event) -> Result<()>;

    /// Removes an event that was handled without a transaction, under the claim.
    ///
    /// # Errors
    /// [`OutboxError::Lock`](crate::OutboxError::Lock) if the claim is lost, or any error of the
    /// source.
    async fn done(&self, claim: &Claim, event: &Event) -> Result<()>;

    /// Notes a failure under the claim, and applies the effect.
    ///
    /// Does nothing if a transaction in the background has handled the event after all.
    ///
    /// # Errors
    /// As [`EventSource::done`].
    async fn failed(
        &self,
        claim: &Claim,
        event: &Event,
        why: &str,
        effect: FailureEffect,
    ) -> Result<RecordedFailure>;

    /// Lists the dead letters, by id. Unreadable ones do not hide the rest.
    ///
    /// # Errors
    /// Any error of the source.
    async fn dead_letters(&self) -> Result<DeadLetters>;

    /// Returns one dead letter, by its event id.
    ///
    /// # Errors
    /// [`OutboxError::NotFound`](crate::OutboxError::NotFound),
    /// [`OutboxError::NewerFormat`](crate::OutboxError::NewerFormat), or any error of the source.
    async fn dead_letter(&self, id: &str) -> Result<DeadLetter>;

    /// Returns a dead letter to its queue.
    ///
    /// # Errors
    /// As [`EventSource::dead_letter`].
    async fn retry(&self, id: &str) -> Result<()>;

    /// Deletes a dead letter. A queue that waited for it continues.
    ///
    /// # Errors
    /// As [`EventSource::dead_letter`].
    async fn discard(&self, id: &str) -> Result<()>;

    /// Counts the waiting events.
    ///
    /// # Errors
    /// Any error of the source.
    async fn backlog(&self) -> Result<Backlog>;
}

/// The result of one poll.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovered {
    /// Queues in which events may wait.
    pub queues: Vec<QueueName>,
    /// Whether the poll was bounded and left queues over.
    ///
    /// The next poll of the same shards continues at this point, and is due at once.
    pub leaves_some: bool,
}

impl From<Vec<QueueName>> for Discovered {
    /// A complete result.
    fn from(queues: Vec<QueueName>) -> Self {
        Self { queues, leaves_some: false }
    }
}

/// The effect of a failure on its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureEffect {
    /// The event is retried.
    Retry,
    /// The event becomes a dead letter, and its queue continues or waits.
    SetAside(crate::AfterDeadLetter),
}

/// The stored result of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedFailure {
    /// The new number of failures.
    Failed(u32),
    /// The event is a dead letter.
    SetAside,
    /// The event was handled by an earlier delivery.
    AlreadyHandled,
}

/// Counts of waiting events. No snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Backlog {
    /// The number of waiting events, without dead letters.
    pub events: u64,
    /// The number of queues with waiting events.
    pub queues: usize,
    /// The number of queues that wait for a dead letter.
    pub blocked: usize,
    /// The number of dead letters.
    pub dead: usize,
    /// The emit time of the oldest waiting event.
    ///
    /// The unit is milliseconds since the Unix epoch.
    pub oldest_ms: Option<u64>,
    /// The number of waiting events by shard number.
    pub shards: BTreeMap<u16, u64>,
    /// The number of waiting events by topic.
    pub topics: BTreeMap<String, u64>,
}

impl Backlog {
    /// The age of the oldest waiting event in milliseconds, or 0.
    #[must_use]
    pub fn lag_ms(&self, now_ms: u64) -> u64 {
        self.oldest_ms.map_or(0, |oldest| now_ms.saturating_sub(oldest))
    }

    pub(crate) fn add(&mut self, shard: &Shard, waiting: u64, oldest_ms: Option<u64>) {
        self.events += waiting;
        self.queues += 1;
        *self.shards.entry(shard.number).or_default() += waiting;
        *self.topics.entry(shard.topic.to_string()).or_default() += waiting;
        self.oldest_ms = self.oldest_ms.into_iter().chain(oldest_ms).min();
    }
}

/// The claim of a processor on a shard. Writes for the shard require it.
#[derive(Clone, Debug)]
pub struct Claim {
    pub(crate) shard: Shard,
    pub(crate) held: Held,
}

impl Claim {
    /// The shard that this claim holds.
    #[must_use]
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// The fencing token: larger than the tokens of all earlier holders.
    ///
    /// The receiver of effects outside of the domain must keep the largest token of a shard, and
    /// refuse smaller ones.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.held.token()
    }

    /// Whether a previous, abandoned claim may have started the event.
    pub(crate) fn may_have_begun(&self, event: &Event, max_drift_ms: u64) -> bool {
        let since_ms = self.held.since_ms().saturating_add(max_drift_ms);
        self.held.was_abandoned() && event.emitted_ms <= since_ms
    }

    /// Checks in a transaction that the processor still holds the shard.
    ///
    /// The transaction must be of the domain. If the processor has lost the shard at the commit,
    /// the transaction writes nothing.
    ///
    /// # Errors
    /// [`OutboxError::Lock`](crate::OutboxError::Lock) if the shard is lost; errors of the engine.
    pub async fn check(&self, tx: &Transaction) -> Result<()> {
        Ok(self.held.fenced().check(tx).await?)
    }

    /// Whether the shard is lost, as far as this process knows. `false` proves nothing.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.held.is_lost()
    }
}
