//! A source for tests that watches its processor.
//!
//! The source panics on request, counts reads, and keeps refusals of claims.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use txn_core::Transaction;
use txn_outbox::{
    Backlog, Claim, DeadLetter, DeadLetters, Discovered, Event, EventSource, FailureEffect,
    LocalWakeups, QueueName, RecordedFailure, Result, Shard,
};

#[derive(Debug)]
pub(crate) struct Watched {
    source: Arc<dyn EventSource>,
    /// The number of panics left for reads of a queue.
    pub(crate) panics: AtomicU64,
    /// The number of reads of a queue.
    pub(crate) reads: AtomicU64,
    /// The reason of the last refused claim.
    pub(crate) refused: Mutex<Option<String>>,
}

impl Watched {
    pub(crate) fn new(source: Arc<dyn EventSource>, panics: u64) -> Arc<Self> {
        let (panics, reads) = (AtomicU64::new(panics), AtomicU64::default());
        Arc::new(Self { source, panics, reads, refused: Mutex::default() })
    }
}

#[async_trait]
impl EventSource for Watched {
    fn name(&self) -> &str {
        self.source.name()
    }

    fn shards(&self) -> u16 {
        self.source.shards()
    }

    fn local_wakeups(&self) -> &LocalWakeups {
        self.source.local_wakeups()
    }

    async fn claimed(&self, claim: &Claim) -> Result<()> {
        let claimed = self.source.claimed(claim).await;
        if let Err(error) = &claimed {
            *self.refused.lock() = Some(error.to_string());
        }
        claimed
    }

    async fn discover(&self, shards: &BTreeSet<Shard>) -> Result<Discovered> {
        self.source.discover(shards).await
    }

    async fn postpone(&self, claim: &Claim, event: &Event) -> Result<bool> {
        self.source.postpone(claim, event).await
    }

    async fn next(&self, queue: &QueueName, most: usize) -> Result<Vec<Event>> {
        self.reads.fetch_add(1, Ordering::AcqRel);
        let less = |left: u64| left.checked_sub(1);
        let left = self.panics.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        assert!(left.is_err(), "by purpose");
        self.source.next(queue, most).await
    }

    async fn take(&self, tx: &Transaction, event: &Event) -> Result<Option<u64>> {
        self.source.take(tx, event).await
    }

    fn takes_several(&self) -> bool {
        self.source.takes_several()
    }

    async fn taken(&self, claim: &Claim, event: &Event) -> Result<()> {
        self.source.taken(claim, event).await
    }

    async fn done(&self, claim: &Claim, event: &Event) -> Result<()> {
        self.source.done(claim, event).await
    }

    async fn failed(
        &self,
        claim: &Claim,
        event: &Event,
        why: &str,
        effect: FailureEffect,
    ) -> Result<RecordedFailure> {
        self.source.failed(claim, event, why, effect).await
    }

    async fn dead_letters(&self) -> Result<DeadLetters> {
        self.source.dead_letters().await
    }

    async fn dead_letter(&self, id: &str) -> Result<DeadLetter> {
        self.source.dead_letter(id).await
    }

    async fn retry(&self, id: &str) -> Result<()> {
        self.source.retry(id).await
    }

    async fn discard(&self, id: &str) -> Result<()> {
        self.source.discard(id).await
    }

    async fn backlog(&self) -> Result<Backlog> {
        self.source.backlog().await
    }
}
