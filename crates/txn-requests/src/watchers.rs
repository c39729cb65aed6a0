//! Those who wait in this process for a request: woken when this process changes it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Watchers(Mutex<BTreeMap<String, Weak<Notify>>>);

/// One who waits.
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
    /// Returns when the request changes after this call.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + use<'_> {
        // It hears from now on, not from its first poll on.
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
