//! The live attempts of this process, and the signals to each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use txn_protocol::ids::AttemptId;

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
    /// The time limit for sending the commit, on the monotonic clock.
    limit: Mutex<Duration>,
    /// The label of the transaction.
    pub(crate) label: Option<Arc<str>>,
}

impl AttemptHandle {
    /// The time limit for sending the commit, on the monotonic clock.
    pub(crate) fn limit(&self) -> Duration {
        *self.limit.lock()
    }

    /// Excludes a wait from the time of the attempt.
    ///
    /// The attempt held no lock during the wait, so that no other transaction waited for it.
    pub(crate) fn exclude_wait(&self, waited: Duration) {
        let mut limit = self.limit.lock();
        *limit = limit.saturating_add(waited);
    }

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

/// The attempts of this process that have not ended.
#[derive(Debug, Default)]
pub(crate) struct LiveAttempts {
    live: Mutex<BTreeMap<AttemptId, Arc<AttemptHandle>>>,
}

impl LiveAttempts {
    /// Registers an attempt.
    ///
    /// `limit`: see [`AttemptHandle::limit`].
    pub(crate) fn register(
        &self,
        tid: AttemptId,
        label: Option<Arc<str>>,
        limit: Duration,
    ) -> Arc<AttemptHandle> {
        let handle = Arc::new(AttemptHandle {
            wounded: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
            expired: AtomicBool::new(false),
            notify: Notify::new(),
            limit: Mutex::new(limit),
            label,
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

    /// The label of an attempt of this process, while the attempt lives.
    pub(crate) fn label_of(&self, tid: AttemptId) -> Option<Arc<str>> {
        self.live.lock().get(&tid).and_then(|handle| handle.label.clone())
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn_protocol::rules::testing::tid;

    #[test]
    fn wound_reaches_only_live_attempts() {
        let live_attempts = LiveAttempts::default();
        let handle = live_attempts.register(tid(1, 0), None, Duration::MAX);
        live_attempts.wound(tid(1, 0));
        live_attempts.wound(tid(2, 0));
        assert!(handle.wounded.load(Ordering::Acquire) && live_attempts.is_live(tid(1, 0)));
        live_attempts.forget(tid(1, 0));
        assert!(!live_attempts.is_live(tid(1, 0)));
    }
}
