//! The transactions of this process, and the queues in which they wait for each other by age.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::store::Key;
use txn_protocol::tid::{Age, Tid};

/// One attempt that runs in this process.
#[derive(Debug)]
pub(crate) struct Local {
    /// An older transaction aborted it.
    pub(crate) wounded: AtomicBool,
    /// Nobody waits for it any more: stop as soon as possible.
    pub(crate) cancelled: AtomicBool,
    /// It came to the limit of an attempt, and its locks were given back.
    pub(crate) expired: AtomicBool,
    /// Woken when one of them changes.
    pub(crate) stirred: Notify,
}

impl Local {
    /// Stops the attempt as soon as possible.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.stirred.notify_one();
    }

    /// It came to the limit of an attempt.
    pub(crate) fn expire(&self) {
        self.expired.store(true, Ordering::Release);
        self.stirred.notify_one();
    }

    /// An older transaction aborted it.
    pub(crate) fn wound(&self) {
        self.wounded.store(true, Ordering::Release);
        self.stirred.notify_one();
    }
}

/// Place in a queue: by age, then by arrival.
type Place = (Age, u64);

#[derive(Debug, Default)]
pub(crate) struct Locals {
    live: Mutex<BTreeMap<Tid, Arc<Local>>>,
    queues: Mutex<BTreeMap<Key, BTreeMap<Place, Arc<Notify>>>>,
    arrivals: AtomicU64,
}

impl Locals {
    pub(crate) fn register(&self, tid: Tid) -> Arc<Local> {
        let local = Arc::new(Local {
            wounded: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
            expired: AtomicBool::new(false),
            stirred: Notify::new(),
        });
        self.live.lock().insert(tid, local.clone());
        local
    }

    /// The attempt is over: its locks are no longer somebody's who lives here.
    pub(crate) fn forget(&self, tid: Tid) {
        self.live.lock().remove(&tid);
    }

    pub(crate) fn is_live(&self, tid: Tid) -> bool {
        self.live.lock().contains_key(&tid)
    }

    pub(crate) fn live_count(&self) -> usize {
        self.live.lock().len()
    }

    /// Tells an attempt of this process that it is aborted, which saves it the way to its commit.
    pub(crate) fn wound(&self, tid: Tid) {
        if let Some(local) = self.live.lock().get(&tid) {
            local.wound();
        }
    }

    /// Joins the queue for a document; leaving is dropping the ticket.
    pub(crate) fn enter(self: &Arc<Self>, key: &Key, age: Age) -> Ticket {
        let place = (age, self.arrivals.fetch_add(1, Ordering::Relaxed));
        let notify = Arc::new(Notify::new());
        self.queues.lock().entry(key.clone()).or_default().insert(place, notify.clone());
        Ticket { locals: self.clone(), key: key.clone(), place, notify }
    }

    /// The documents are free: wakes the oldest that waits for each.
    pub(crate) fn release<'a>(&self, keys: impl IntoIterator<Item = &'a Key>) {
        let queues = self.queues.lock();
        for key in keys {
            if let Some((_, first)) = queues.get(key).and_then(BTreeMap::first_key_value) {
                first.notify_one();
            }
        }
    }
}

/// A place in the queue for one document.
#[derive(Debug)]
pub(crate) struct Ticket {
    locals: Arc<Locals>,
    key: Key,
    place: Place,
    notify: Arc<Notify>,
}

impl Ticket {
    /// Whether nobody older waits for the document in this process.
    pub(crate) fn is_first(&self) -> bool {
        let queues = self.locals.queues.lock();
        let first = queues.get(&self.key).and_then(BTreeMap::first_key_value);
        first.is_none_or(|(place, _)| *place == self.place)
    }

    /// Returns when the document was released and this is the oldest that waits. Cancel safe.
    pub(crate) async fn woken(&self) {
        self.notify.notified().await;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut queues = self.locals.queues.lock();
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
    async fn the_oldest_is_woken_first_and_leaving_makes_room() {
        let locals = Arc::new(Locals::default());
        let key = Key::new("c", "i");
        let young = locals.enter(&key, tid(9, 0).age());
        let old = locals.enter(&key, tid(1, 0).age());
        assert!(old.is_first() && !young.is_first());
        locals.release([&key]);
        old.woken().await;
        drop(old);
        assert!(young.is_first());
        locals.release([&key, &Key::new("c", "nobody waits")]);
        young.woken().await;
        drop(young);
        assert!(locals.queues.lock().is_empty());
    }

    #[test]
    fn wounds_reach_the_living_only() {
        let locals = Locals::default();
        let local = locals.register(tid(1, 0));
        locals.wound(tid(1, 0));
        locals.wound(tid(2, 0));
        assert!(local.wounded.load(Ordering::Acquire) && locals.is_live(tid(1, 0)));
        locals.forget(tid(1, 0));
        assert!(!locals.is_live(tid(1, 0)));
    }
}
