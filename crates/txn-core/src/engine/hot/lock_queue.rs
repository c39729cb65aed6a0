//! The wait queues of this process for locked documents.
//!
//! Each locked document has one queue, ordered by age.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use txn_protocol::ids::Age;
use txn_store::Key;

/// A position in a queue: by age, then by arrival.
type Position = (Age, u64);

/// The attempts of this process that wait for locked documents.
#[derive(Debug, Default)]
pub(crate) struct LockQueues {
    queues: Mutex<BTreeMap<Key, BTreeMap<Position, Arc<Notify>>>>,
    arrivals: AtomicU64,
}

impl LockQueues {
    /// Whether an older transaction waits for one of the documents.
    pub(crate) fn is_wanted_by_older<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a Key>,
        age: Age,
    ) -> bool {
        let queues = self.queues.lock();
        let first = |key| queues.get(key).and_then(BTreeMap::first_key_value);
        !queues.is_empty()
            && keys.into_iter().filter_map(first).any(|((oldest, _), _)| *oldest < age)
    }

    /// Joins the queue for a document. Dropping the wait leaves the queue.
    pub(crate) fn enter(self: &Arc<Self>, key: &Key, age: Age) -> QueuedLock {
        let position = (age, self.arrivals.fetch_add(1, Ordering::Relaxed));
        let notify = Arc::new(Notify::new());
        self.queues.lock().entry(key.clone()).or_default().insert(position, notify.clone());
        QueuedLock { lock_queues: self.clone(), key: key.clone(), position, notify }
    }

    /// Wakes the oldest waiter of each released document.
    pub(crate) fn release<'a>(&self, keys: impl IntoIterator<Item = &'a Key>) {
        let queues = self.queues.lock();
        for key in keys {
            if let Some((_, first)) = queues.get(key).and_then(BTreeMap::first_key_value) {
                first.notify_one();
            }
        }
    }
}

/// The wait of one attempt in the queue for one document.
#[derive(Debug)]
pub(crate) struct QueuedLock {
    lock_queues: Arc<LockQueues>,
    key: Key,
    position: Position,
    notify: Arc<Notify>,
}

impl QueuedLock {
    /// Whether no older transaction of this process waits for the document.
    pub(crate) fn is_first(&self) -> bool {
        let queues = self.lock_queues.queues.lock();
        let first = queues.get(&self.key).and_then(BTreeMap::first_key_value);
        first.is_none_or(|(position, _)| *position == self.position)
    }

    /// Waits until the document is released and this waiter is the oldest. Cancel safe.
    pub(crate) async fn woken(&self) {
        self.notify.notified().await;
    }
}

impl Drop for QueuedLock {
    fn drop(&mut self) {
        let mut queues = self.lock_queues.queues.lock();
        if let Some(queue) = queues.get_mut(&self.key) {
            queue.remove(&self.position);
            if queue.is_empty() {
                queues.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn_protocol::rules::testing::tid;

    #[tokio::test]
    async fn release_wakes_oldest_waiter_first() {
        let lock_queues = Arc::new(LockQueues::default());
        let key = Key::new("c", "i");
        let young = lock_queues.enter(&key, tid(9, 0).age());
        let old = lock_queues.enter(&key, tid(1, 0).age());
        assert!(old.is_first() && !young.is_first());
        lock_queues.release([&key]);
        old.woken().await;
        drop(old);
        assert!(young.is_first());
        lock_queues.release([&key, &Key::new("c", "free")]);
        young.woken().await;
        drop(young);
        assert!(lock_queues.queues.lock().is_empty());
    }
}
