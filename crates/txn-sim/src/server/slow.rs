//! A part of the server that is slow or hangs.
//!
//! A node is busy, paused, or cut off from the copies of its shards. The rest of the server is
//! fast. A request is as slow as its slowest document.

use std::time::Duration;

use txn_store::{Key, Outcome, Read, Store, StoreError, StoreErrorKind, Write};

use super::{Server, State};

/// The number of shards of each collection.
pub const SHARDS: u8 = 3;

/// Returns the shard of a document.
#[must_use]
pub fn shard_of(key: &Key) -> u8 {
    let hash = key.id.bytes().fold(0_u8, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte));
    hash % SHARDS
}

/// A slow part of the server.
#[derive(Clone, Debug)]
pub struct SlowPart {
    /// The prefix of the names of its collections.
    pub collections: String,
    /// The only slow shard of each collection; `None` for all shards.
    pub shard: Option<u8>,
    /// How long a request takes that reads there.
    pub reads: Duration,
    /// How long a request takes that writes there.
    ///
    /// A request that takes longer than a client waits is carried out nevertheless.
    pub writes: Duration,
}

impl SlowPart {
    fn is_in(&self, key: &Key) -> bool {
        self.is_of(&key.collection) && self.shard.is_none_or(|shard| shard == shard_of(key))
    }

    fn is_of(&self, collection: &str) -> bool {
        collection.starts_with(&self.collections)
    }

    fn takes(&self, call: Call) -> Duration {
        match call {
            Call::Read => self.reads,
            Call::Write => self.writes,
        }
    }
}

/// The kind of request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    Read,
    /// A write of documents, or a request that every copy carries out.
    Write,
}

/// A fast document in a request with a slow one.
#[derive(Clone, Debug)]
pub struct HeldUp {
    /// The document.
    pub key: Key,
    /// When the request was sent.
    pub from: Duration,
    /// When the request was answered.
    pub until: Duration,
}

/// The times of a request through the slow part. The times are those of execution and answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    before: Duration,
    takes: Duration,
}

pub(super) fn timed_out() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "no answer in time")
}

impl State {
    /// Returns the times of a request; `None` if it takes no time.
    fn way(&mut self, takes: Duration) -> Option<Way> {
        // The request waits before or after its execution.
        let before = |dice: &mut fastrand::Rng| if dice.bool() { takes } else { Duration::ZERO };
        (takes > Duration::ZERO).then(|| Way { before: before(&mut self.dice), takes })
    }
}

impl Server {
    /// Makes this part slow from now on, and no other part.
    pub fn slow_down(&self, part: Option<SlowPart>) {
        let mut state = self.state.lock();
        state.misdeeds.slow_parts += u64::from(part.is_some());
        state.slow = part;
    }

    /// Returns the fast documents that waited for slow ones in their requests.
    #[must_use]
    pub fn held_up(&self) -> Vec<HeldUp> {
        self.state.lock().held_up.clone()
    }

    /// Returns the times of a request with a slow document.
    ///
    /// `None` without a document in the slow part.
    fn way_of<'a>(&self, keys: impl Iterator<Item = &'a Key>, call: Call) -> Option<Way> {
        let mut state = self.state.lock();
        let part = state.slow.as_ref()?;
        let takes = part.takes(call);
        let (slow, quick): (Vec<&Key>, Vec<&Key>) = keys.partition(|key| part.is_in(key));
        if slow.is_empty() || takes == Duration::ZERO {
            return None;
        }
        let from = self.origin.elapsed();
        let until = from + takes.min(state.request_timeout);
        let held_up = quick.into_iter().map(|key| HeldUp { key: key.clone(), from, until });
        state.held_up.extend(held_up);
        state.misdeeds.slow_requests += 1;
        state.way(takes)
    }

    /// Returns the times of a request about a whole collection.
    pub(super) fn way_through(&self, collection: &str, call: Call) -> Option<Way> {
        let mut state = self.state.lock();
        let part = state.slow.as_ref().filter(|part| part.is_of(collection))?;
        let takes = part.takes(call);
        state.way(takes)
    }

    /// Carries a call out. `None` if its answer comes later than a client waits.
    pub(super) async fn slowly<T>(&self, way: Option<Way>, call: impl FnOnce() -> T) -> Option<T> {
        let Some(Way { before, takes }) = way else { return Some(call()) };
        let patience = self.request_timeout();
        tokio::time::sleep(before.min(patience)).await;
        let answer = call();
        tokio::time::sleep(takes.min(patience) - before.min(patience)).await;
        (takes <= patience).then_some(answer)
    }

    pub(super) async fn read(&self, keys: &[Key], primary: bool) -> Vec<Read> {
        let way = self.way_of(keys.iter(), Call::Read);
        let reads = self.slowly(way, || self.read_now(keys, primary)).await;
        reads.unwrap_or_else(|| keys.iter().map(|_| Read::Unavailable(timed_out())).collect())
    }

    /// Carries out one write of a bulk request.
    pub(super) async fn write_slowly(&self, write: &Write) -> Outcome {
        let way = {
            let mut state = self.state.lock();
            let part = state.slow.as_ref().filter(|part| part.is_in(&write.key));
            let takes = part.map_or(Duration::ZERO, |part| part.writes);
            state.way(takes)
        };
        let Some(Way { before, takes }) = way else { return self.carry_out(write).await };
        tokio::time::sleep(before).await;
        let outcome = self.carry_out(write).await;
        tokio::time::sleep(takes - before).await;
        outcome
    }

    pub(super) async fn write(&self, writes: &[Write]) -> Vec<Outcome> {
        let Some(this) = self.this.upgrade() else { return Vec::new() };
        let is_slow = self.way_of(writes.iter().map(|write| &write.key), Call::Write).is_some();
        let sent = writes.to_vec();
        let bulk = tokio::spawn(async move { this.bulk(&sent).await });
        // If the task fails, the answer is too short.
        if !is_slow {
            return bulk.await.unwrap_or_default();
        }
        match tokio::time::timeout(self.request_timeout(), bulk).await {
            Ok(outcomes) => outcomes.unwrap_or_default(),
            // One item hangs, and with it the answer to all items.
            Err(_) => writes.iter().map(|_| Outcome::Unknown(timed_out().message)).collect(),
        }
    }
}
