//! Where events come from.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use async_trait::async_trait;
use serde::Serialize;
use txn_core::Transaction;
use txn_lock::Held;

use crate::error::Result;
use crate::event::{DeadLetter, DeadLetters, Event};
use crate::fresh::Fresh;
use crate::name::QueueName;
use crate::shard::Shard;

/// Where events come from: an [`Outbox`](crate::Outbox), a table of a relational database, or something of your own.
/// Processors ask it what waits, and tell it what became of that.
///
/// What it promises: a queue shows its events one after the other in the order in which their transactions committed;
/// none of a transaction that did not commit; each again and again until it was done, or set aside. What processors
/// promise: one of them at a time holds a [`Claim`] on a shard, and shows it wherever something is written.
#[async_trait]
pub trait EventSource: fmt::Debug + Send + Sync + 'static {
    /// Its name among the sources of a domain: the locks of its shards have it. 1 to 100 bytes.
    fn name(&self) -> &str;

    /// How many shards each of its topics has, 1 to 256.
    fn shards(&self) -> u16;

    /// What was emitted in this process.
    fn fresh(&self) -> &Fresh;

    /// Hears that a shard is held from now on, before anything of it is read under that claim. A source that keeps tokens
    /// raises its own here, so that whoever held the shard before writes nothing any more. An error gives the shard back.
    ///
    /// # Errors
    /// As the source says.
    async fn claimed(&self, _claim: &Claim) -> Result<()> {
        Ok(())
    }

    /// The queues of these shards in which events wait. Candidates only: what they are, [`EventSource::next`] says. May
    /// miss those of the last moment, and shows them later.
    ///
    /// # Errors
    /// Those of [`OutboxError`](crate::OutboxError) that speak of the store.
    async fn discover(&self, shards: &BTreeSet<Shard>) -> Result<Discovered>;

    /// The next events of a queue in order, at most so many; none if it waits for a dead letter.
    ///
    /// # Errors
    /// [`OutboxError::NewerFormat`](crate::OutboxError::NewerFormat), [`OutboxError::Missing`](crate::OutboxError::Missing),
    /// or those that speak of the store.
    async fn next(&self, queue: &QueueName, most: usize) -> Result<Vec<Event>>;

    /// Notes that handling an event begins, if the claim still holds: [`Event::unfinished`] counts it until the event is done or
    /// has failed. Called for events that a process may have died over, before they are handled. A source that notes nothing
    /// never sets such an event aside.
    ///
    /// # Errors
    /// As [`EventSource::done`].
    async fn begin(&self, _claim: &Claim, _event: &Event) -> Result<()> {
        Ok(())
    }

    /// Notes in a transaction of the domain that an event is handled by what this transaction does, which has checked the
    /// claim. If it commits, the event is never handled again.
    ///
    /// # Errors
    /// [`OutboxError::NotNext`](crate::OutboxError::NotNext) if it was handled before; the engine's.
    async fn take(&self, tx: &Transaction, event: &Event) -> Result<()>;

    /// Whether one transaction may take several events of a queue, in their order.
    fn takes_several(&self) -> bool {
        false
    }

    /// Removes an event that was taken by a transaction. Its queue does not go on before that; if it fails, the next
    /// [`EventSource::next`] does it.
    ///
    /// # Errors
    /// As the store says.
    async fn taken(&self, claim: &Claim, event: &Event) -> Result<()>;

    /// Removes an event that was handled without a transaction, if the claim still holds.
    ///
    /// # Errors
    /// [`OutboxError::Lock`](crate::OutboxError::Lock) if the claim is lost, or as the store says.
    async fn done(&self, claim: &Claim, event: &Event) -> Result<()>;

    /// Notes that handling an event failed, if the claim still holds, and sets it aside if the verdict says so; unless a
    /// transaction that went on in the background handled it after all.
    ///
    /// # Errors
    /// As [`EventSource::done`].
    async fn failed(
        &self,
        claim: &Claim,
        event: &Event,
        why: &str,
        verdict: Verdict,
    ) -> Result<Noted>;

    /// What was set aside, by id. One that cannot be read because its format is newer hides no other.
    ///
    /// # Errors
    /// As the store says.
    async fn dead_letters(&self) -> Result<DeadLetters>;

    /// One event that was set aside, by its id.
    ///
    /// # Errors
    /// [`OutboxError::NotFound`](crate::OutboxError::NotFound), [`OutboxError::NewerFormat`](crate::OutboxError::NewerFormat), or
    /// as the store says.
    async fn dead_letter(&self, id: &str) -> Result<DeadLetter>;

    /// Lets an event be handled again that was set aside.
    ///
    /// # Errors
    /// As [`EventSource::dead_letter`].
    async fn retry(&self, id: &str) -> Result<()>;

    /// Forgets an event that was set aside. If its queue waited for it, the queue goes on.
    ///
    /// # Errors
    /// As [`EventSource::dead_letter`].
    async fn discard(&self, id: &str) -> Result<()>;

    /// What waits.
    ///
    /// # Errors
    /// As the store says.
    async fn backlog(&self) -> Result<Backlog>;
}

/// What one look for queues found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovered {
    /// Queues in which events may wait.
    pub queues: Vec<QueueName>,
    /// Whether the look was bounded, and left some: the next look at the same shards goes on behind it, and is due at once.
    pub leaves_some: bool,
}

impl From<Vec<QueueName>> for Discovered {
    /// All that there are.
    fn from(queues: Vec<QueueName>) -> Self {
        Self { queues, leaves_some: false }
    }
}

/// What is to become of an event that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is tried again.
    Again,
    /// It is set aside, and its queue does this.
    SetAside(crate::AfterDeath),
}

/// What was noted of an event that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// It failed so often by now.
    Failed(u32),
    /// It is set aside.
    SetAside,
    /// It is not there any more: it was handled after all.
    Gone,
}

/// What waits in an outbox, at one look. No snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Backlog {
    /// Events that wait, dead letters not counted.
    pub events: u64,
    /// Queues in which events wait.
    pub queues: usize,
    /// Those of them that wait for a dead letter.
    pub blocked: usize,
    /// Dead letters.
    pub dead: usize,
    /// When the oldest event that waits was emitted, in milliseconds since the Unix epoch.
    pub oldest_ms: Option<u64>,
    /// Events that wait, by the number of their shard.
    pub shards: BTreeMap<u16, u64>,
    /// Events that wait, by topic.
    pub topics: BTreeMap<String, u64>,
}

impl Backlog {
    /// How long the oldest event has waited, in milliseconds; 0 if none waits.
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

/// One holding of a shard: what is written for it is written only while this holds.
#[derive(Clone, Debug)]
pub struct Claim {
    pub(crate) shard: Shard,
    pub(crate) held: Held,
}

impl Claim {
    /// The shard.
    #[must_use]
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// The fencing token: larger than that of everybody who held the shard before. Let whoever makes effects elsewhere keep
    /// the largest that it saw of a shard, and refuse smaller ones.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.held.token()
    }

    /// Whether handling an event may have begun under a claim before this one that was not given back.
    pub(crate) fn may_have_begun(&self, event: &Event, max_drift_ms: u64) -> bool {
        let since_ms = self.held.since_ms().saturating_add(max_drift_ms);
        self.held.was_abandoned() && event.emitted_ms <= since_ms
    }

    /// Checks in a transaction of the domain that the shard is still held. If it is not when that commits, nothing is written.
    ///
    /// # Errors
    /// [`OutboxError::Lock`](crate::OutboxError::Lock) if it is lost; the engine's.
    pub async fn check(&self, tx: &Transaction) -> Result<()> {
        Ok(self.held.fenced().check(tx).await?)
    }

    /// Whether it is lost, as far as this process can know. No proof that it is not.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.held.is_lost()
    }
}
