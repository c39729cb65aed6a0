//! Stores that do not take a lock over a commit, or do not answer for a document.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use tokio::sync::Notify;
use txn_core::fields;
use txn_core::store::{
    Key, Layer, Outcome, Read, Store, StoreError, StoreErrorKind, Write, WriteOp,
};

/// Refuses, once, the lock on a document that is written over the lock of another transaction; what others do meanwhile is in
/// between.
#[derive(Debug)]
pub(super) struct Refusing {
    inner: Arc<dyn Store>,
    id: &'static str,
    with: Outcome,
    pub(super) armed: AtomicBool,
    pub(super) refuses: Notify,
    pub(super) go_on: Notify,
}

impl Refusing {
    pub(super) fn new(inner: Arc<dyn Store>, id: &'static str, with: Outcome) -> Arc<Self> {
        let (armed, refuses, go_on) = (AtomicBool::new(false), Notify::new(), Notify::new());
        Arc::new(Self { inner, id, with, armed, refuses, go_on })
    }

    async fn is_lock_over(&self, write: &Write) -> bool {
        let lock = format!("\"{}\":", fields::TRANSACTION_TID);
        let WriteOp::Replace(source, _) = &write.op else { return false };
        let stands = self.inner.read_primary(std::slice::from_ref(&write.key)).await;
        let is_locked =
            |read: &Read| matches!(read, Read::Found { source, .. } if source.contains(&lock));
        source.contains(&lock) && stands.iter().all(is_locked)
    }
}

#[async_trait]
impl Layer for Refusing {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let is_lock = |write: &Write| matches!(write.op, WriteOp::Replace(..));
        let on_one = writes.iter().position(|w| w.key.id.as_ref() == self.id && is_lock(w));
        if let Some(at) = on_one
            && self.is_lock_over(&writes[at]).await
            && self.armed.swap(false, Ordering::Relaxed)
        {
            self.refuses.notify_one();
            self.go_on.notified().await;
            let mut others = writes.to_vec();
            others.remove(at);
            let mut outcomes = self.inner.write_many(&others).await;
            outcomes.insert(at, self.with.clone());
            return outcomes;
        }
        self.inner.write_many(writes).await
    }
}

/// Does not answer for a document, or has others be faster with its lock, while it is armed.
#[derive(Debug)]
pub(super) struct Unhelpful {
    inner: Arc<dyn Store>,
    id: &'static str,
    /// It does not answer.
    pub(super) armed: AtomicBool,
    /// How many locks others are faster with.
    pub(super) conflicts: AtomicUsize,
}

impl Unhelpful {
    pub(super) fn new(inner: Arc<dyn Store>, id: &'static str) -> Arc<Self> {
        let (armed, conflicts) = (AtomicBool::new(false), AtomicUsize::new(0));
        Arc::new(Self { inner, id, armed, conflicts })
    }
}

#[async_trait]
impl Layer for Unhelpful {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        let mut reads = self.inner.read_primary(keys).await;
        if self.armed.load(Ordering::Relaxed) {
            for (_, read) in keys.iter().zip(&mut reads).filter(|(key, _)| *key.id == *self.id) {
                let silent = StoreError::new(StoreErrorKind::Unavailable, "its shard is away");
                *read = Read::Unavailable(silent);
            }
        }
        reads
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let is_its_lock = |write: &Write| {
            let lock = format!("\"{}\":", fields::TRANSACTION_TID);
            let is_lock =
                matches!(&write.op, WriteOp::Replace(source, _) if source.contains(&lock));
            is_lock && *write.key.id == *self.id
        };
        let left = |left: usize| left.checked_sub(1);
        if let Some(at) = writes.iter().position(is_its_lock)
            && self.conflicts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok()
        {
            let mut others = writes.to_vec();
            others.remove(at);
            let mut outcomes = self.inner.write_many(&others).await;
            outcomes.insert(at, Outcome::Conflict);
            return outcomes;
        }
        self.inner.write_many(writes).await
    }
}
