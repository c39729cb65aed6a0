//! Attempts of this process, and their wait queues by age.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::store::Key;
use txn_protocol::ids::{Age, AttemptId};

/// The signals to one attempt of this process.
#[derive(Debug)]
pub(crate) struct AttemptHandle {
    /// An older transaction aborted the attempt.
    pub(crate) wounded: AtomicBool,
    /// No caller waits for the attempt, which stops as soon as possible.
    pub(crate) cancelled: AtomicBool,
    /// The attempt reached `attempt_timeout`, and its locks were released.
    pub(crate) expired: AtomicBool,
    /// Woken when one of the flags changes.
    pub(crate) notify: Notify,
}

impl AttemptHandle {
    /// Stops the attempt as soon as possible.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.notify.notify_one();
    }

    /// Marks the attempt as expired: it reached `attempt_timeout`.
    pub(crate) fn expire(&self) {
        self.expired.store(true, Ordering::Release);
        self.notify.notify_one();
    }

    /// Marks the attempt as wounded: an older transaction aborted it.
    pub(crate) fn wound(&self) {
        self.wounded.store(true, Ordering::Release);
        self.notify.notify_one();
    }
}

/// A position in a queue: by age, then by arrival.
type Place = (Age, u64);

#[derive(Debug, Default)]
pub(crate) struct LiveAttempts {
    live: Mutex<BTreeMap<AttemptId, Arc<AttemptHandle>>>,
    queues: Mutex<BTreeMap<Key, BTreeMap<Place, Arc<Notify>>>>,
    arrivals: AtomicU64,
}

impl LiveAttempts {
    pub(crate) fn register(&self, tid: AttemptId) -> Arc<AttemptHandle> {
        let handle = Arc::new(AttemptHandle {
            wounded: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
            expired: AtomicBool::new(false),
            notify: Notify::new(),
        });
        self.live.lock().insert(tid, handle.clone());
        handle
    }

    /// Removes an ended attempt, whose locks no longer count as live.
    pub(crate) fn forget(&self, tid: AttemptId) {
        self.live.lock().remove(&tid);
    }

    pub(crate) fn is_live(&self, tid: AttemptId) -> bool {
        self.live.lock().contains_key(&tid)
    }

    pub(crate) fn live_count(&self) -> usize {
        self.live.lock().len()
    }

    /// Tells an attempt of this process that it is aborted.
    ///
    /// The attempt then stops before its commit.
    pub(crate) fn wound(&self, tid: AttemptId) {
        if let Some(handle) = self.live.lock().get(&tid) {
            handle.wound();
        }
    }

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

    /// Joins the queue for a document. Dropping the ticket leaves the queue.
    pub(crate) fn enter(self: &Arc<Self>, key: &Key, age: Age) -> Ticket {
        let place = (age, self.arrivals.fetch_add(1, Ordering::Relaxed));
        let notify = Arc::new(Notify::new());
        self.queues.lock().entry(key.clone()).or_default().insert(place, notify.clone());
        Ticket { live_attempts: self.clone(), key: key.clone(), place, notify }
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

/// A position in the queue for one document.
#[derive(Debug)]
pub(crate) struct Ticket {
    live_attempts: Arc<LiveAttempts>,
    key: Key,
    place: Place,
    notify: Arc<Notify>,
}

impl Ticket {
    /// Whether no older transaction of this process waits for the document.
    pub(crate) fn is_first(&self) -> bool {
        let queues = self.live_attempts.queues.lock();
        let first = queues.get(&self.key).and_then(BTreeMap::first_key_value);
        first.is_none_or(|(place, _)| *place == self.place)
    }

    /// Waits until the document is released and this waiter is the oldest. Cancel safe.
    pub(crate) async fn woken(&self) {
        self.notify.notified().await;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut queues = self.live_attempts.queues.lock();
        if let Some(queue) = queues.get_mut(&self.key) {
            queue.remove(&self.place);
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
        let live_attempts = Arc::new(LiveAttempts::default());
        let key = Key::new("c", "i");
        let young = live_attempts.enter(&key, tid(9, 0).age());
        let old = live_attempts.enter(&key, tid(1, 0).age());
        assert!(old.is_first() && !young.is_first());
        live_attempts.release([&key]);
        old.woken().await;
        drop(old);
        assert!(young.is_first());
        live_attempts.release([&key, &Key::new("c", "free")]);
        young.woken().await;
        drop(young);
        assert!(live_attempts.queues.lock().is_empty());
    }

    #[test]
    fn wound_reaches_only_live_attempts() {
        let live_attempts = LiveAttempts::default();
        let handle = live_attempts.register(tid(1, 0));
        live_attempts.wound(tid(1, 0));
        live_attempts.wound(tid(2, 0));
        assert!(handle.wounded.load(Ordering::Acquire) && live_attempts.is_live(tid(1, 0)));
        live_attempts.forget(tid(1, 0));
        assert!(!live_attempts.is_live(tid(1, 0)));
    }
}
