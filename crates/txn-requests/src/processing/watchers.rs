//! Local wake-ups of callers that wait for a request.
//!
//! A change of the request in this process wakes them.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Watchers(Mutex<BTreeMap<String, Weak<Notify>>>);

/// A caller that waits for a request.
pub(crate) struct Watcher<'a> {
    watchers: &'a Watchers,
    id: String,
    notify: Arc<Notify>,
}

impl Watchers {
    pub(crate) fn watch(&self, id: &str) -> Watcher<'_> {
        let mut watchers = self.0.lock();
        let known = watchers.get(id).and_then(Weak::upgrade);
        let notify = known.unwrap_or_default();
        watchers.insert(id.to_owned(), Arc::downgrade(&notify));
        Watcher { watchers: self, id: id.to_owned(), notify }
    }

    pub(crate) fn changed(&self, id: &str) {
        let watcher = self.0.lock().get(id).and_then(Weak::upgrade);
        if let Some(watcher) = watcher {
            watcher.notify_waiters();
        }
    }
}

impl Watcher<'_> {
    /// Waits for the next change of the request after this call.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + use<'_> {
        // Registers now, not at the first poll.
        self.notify.notified()
    }
}

impl Drop for Watcher<'_> {
    fn drop(&mut self) {
        let mut watchers = self.watchers.0.lock();
        if Arc::strong_count(&self.notify) == 1 {
            watchers.remove(&self.id);
        }
    }
}
