//! A store that refuses a hand-off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use tokio::sync::Notify;
use txn_core::store::fields;
use txn_core::store::{Key, Layer, Outcome, Read, Store, Write, WriteOp};

/// Refuses the next hand-off of a document, once `armed`.
///
/// The refusal waits for `go_on`, so that another process can write in between.
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

    /// Whether the document is locked.
    async fn is_over(&self, key: &Key) -> bool {
        let stands = self.inner.read_primary(std::slice::from_ref(key)).await;
        let is_locked =
            |read: &Read| matches!(read, Read::Found { source, .. } if has_lock(source));
        stands.iter().all(is_locked)
    }
}

#[async_trait]
impl Layer for Refusing {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        if let Some(at) = lock_on(self.id, writes)
            && self.is_over(&writes[at].key).await
            && self.armed.swap(false, Ordering::Relaxed)
        {
            self.refuses.notify_one();
            self.go_on.notified().await;
            return write_others(&*self.inner, writes, at, self.with.clone()).await;
        }
        self.inner.write_many(writes).await
    }
}

fn has_lock(source: &str) -> bool {
    source.contains(&format!("\"{}\":", fields::TRANSACTION_TID))
}

/// Returns the index of the write that locks the document.
fn lock_on(id: &str, writes: &[Write]) -> Option<usize> {
    let is_lock =
        |write: &Write| matches!(&write.op, WriteOp::Replace(source, _) if has_lock(source));
    writes.iter().position(|write| *write.key.id == *id && is_lock(write))
}

/// Writes all but the write at `at`, which receives `outcome`.
async fn write_others(
    inner: &dyn Store,
    writes: &[Write],
    at: usize,
    outcome: Outcome,
) -> Vec<Outcome> {
    let mut others = writes.to_vec();
    others.remove(at);
    let mut outcomes = inner.write_many(&others).await;
    outcomes.insert(at, outcome);
    outcomes
}
