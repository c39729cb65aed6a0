//! Stores that do not take a lock over a commit, or do not answer for a document.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// Does not answer for a document, while it is armed.
#[derive(Debug)]
pub(super) struct Silent {
    inner: Arc<dyn Store>,
    id: &'static str,
    pub(super) armed: AtomicBool,
}

impl Silent {
    pub(super) fn new(inner: Arc<dyn Store>, id: &'static str) -> Arc<Self> {
        Arc::new(Self { inner, id, armed: AtomicBool::new(false) })
    }
}

#[async_trait]
impl Layer for Silent {
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
}
