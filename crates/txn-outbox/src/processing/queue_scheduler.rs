//! The scheduler of queues: workers, and pauses of deferred queues.
//!
//! Each queue has one worker.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use txn_core::clock::Clock;

use crate::queue::name::QueueName;

/// The maximum number of remembered pauses.
const MOST_DEFERRED: usize = 100_000;

/// Decides which queues a processor may start now.
pub(crate) struct QueueScheduler {
    clock: Arc<dyn Clock>,
    queues: Mutex<QueueStates>,
}

#[derive(Default)]
struct QueueStates {
    /// The queues in work. The flag says whether events arrived in the meantime.
    working: BTreeMap<QueueName, bool>,
    /// The deferred queues, with the ends of their pauses (monotonic clock).
    deferred: BTreeMap<QueueName, Duration>,
    /// The consecutive waits of each queue's first event.
    waits: BTreeMap<QueueName, u32>,
}

impl QueueStates {
    /// Remembers a pause. Beyond the bound, the next poll finds the queue again.
    fn defer(&mut self, name: &QueueName, until: Duration, most: usize) {
        if self.deferred.len() < most || self.deferred.contains_key(name) {
            self.deferred.insert(name.clone(), until);
        }
    }

    /// Counts a wait. Beyond the bound, each wait counts as the first.
    fn count_wait(&mut self, name: &QueueName, most: usize) -> u32 {
        if self.waits.len() >= most && !self.waits.contains_key(name) {
            return 1;
        }
        let waits = self.waits.entry(name.clone()).or_default();
        *waits = waits.saturating_add(1);
        *waits
    }
}

impl fmt::Debug for QueueScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueScheduler").finish_non_exhaustive()
    }
}

impl QueueScheduler {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, queues: Mutex::default() })
    }

    /// Removes and returns the queues after their pause.
    pub(crate) fn due(&self) -> Vec<QueueName> {
        let now = self.clock.monotonic();
        let mut queues = self.queues.lock();
        let due = queues.deferred.extract_if(.., |_, until| *until <= now);
        due.map(|(name, _)| name).collect()
    }

    /// The end of the next pause.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.queues.lock().deferred.values().min().copied()
    }

    /// Whether a worker may start on a queue now.
    ///
    /// Marks a queue that is already in work, so that its worker reads the queue once more.
    pub(crate) fn may_start(&self, name: &QueueName) -> bool {
        let now = self.clock.monotonic();
        let mut queues = self.queues.lock();
        if let Some(again) = queues.working.get_mut(name) {
            *again = true;
            return false;
        }
        match queues.deferred.get(name) {
            Some(until) if *until > now => false,
            Some(_) => {
                queues.deferred.remove(name);
                true
            }
            None => true,
        }
    }

    /// Starts the work on a queue, unless another worker has the queue.
    ///
    /// A panic of the worker defers the queue for `pause`.
    pub(crate) fn try_start(
        self: &Arc<Self>,
        name: &QueueName,
        pause: Duration,
    ) -> Option<QueueGuard> {
        match self.queues.lock().working.entry(name.clone()) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(free) => free.insert(false),
        };
        Some(QueueGuard { scheduler: self.clone(), name: name.clone(), pause, is_released: false })
    }
}

/// The exclusive right of one worker to a queue. The drop always releases the queue.
#[derive(Debug)]
pub(crate) struct QueueGuard {
    scheduler: Arc<QueueScheduler>,
    name: QueueName,
    pause: Duration,
    is_released: bool,
}

impl QueueGuard {
    pub(crate) fn name(&self) -> &QueueName {
        &self.name
    }

    /// Counts a wait of the first event for an outage. Returns the consecutive waits.
    pub(crate) fn count_wait(&self) -> u32 {
        self.scheduler.queues.lock().count_wait(&self.name, MOST_DEFERRED)
    }

    /// Resets the waits, because the first event is done.
    pub(crate) fn reset_waits(&self) {
        self.scheduler.queues.lock().waits.remove(&self.name);
    }

    /// Ends the work, and defers the queue for `pause`.
    pub(crate) fn defer(mut self, pause: Duration) {
        self.release(Some(pause));
    }

    /// Ends the work.
    ///
    /// Returns `false`, and keeps the queue, if new events arrived and `may_continue`.
    pub(crate) fn try_finish(&mut self, may_continue: bool) -> bool {
        {
            let mut queues = self.scheduler.queues.lock();
            let again = queues.working.get_mut(&self.name).filter(|again| **again && may_continue);
            if let Some(again) = again {
                *again = false;
                return false;
            }
            queues.working.remove(&self.name);
        }
        self.is_released = true;
        true
    }

    fn release(&mut self, pause: Option<Duration>) {
        let until = pause.map(|pause| self.scheduler.clock.monotonic() + pause);
        let mut queues = self.scheduler.queues.lock();
        queues.working.remove(&self.name);
        if let Some(until) = until {
            queues.defer(&self.name, until, MOST_DEFERRED);
        }
        self.is_released = true;
    }
}

impl Drop for QueueGuard {
    fn drop(&mut self) {
        if !self.is_released {
            if std::thread::panicking() {
                tracing::error!(queue = %self.name, "the worker of a queue panicked: the queue is deferred");
            }
            self.release(Some(self.pause));
        }
    }
}

#[cfg(test)]
mod tests {
    use txn_core::clock::SystemClock;

    use super::*;

    fn scheduler() -> (Arc<QueueScheduler>, QueueName) {
        let clock = Arc::new(SystemClock::default());
        (QueueScheduler::new(clock), QueueName::new("t", "k").unwrap())
    }

    #[test]
    fn queue_has_one_worker_and_reports_new_events() {
        let (scheduler, name) = scheduler();
        let mut guard = scheduler.try_start(&name, Duration::ZERO).unwrap();
        assert!(scheduler.try_start(&name, Duration::ZERO).is_none());
        assert!(!scheduler.may_start(&name));
        assert!(!guard.try_finish(true), "events came");
        assert!(guard.try_finish(true));
        assert!(scheduler.may_start(&name) && scheduler.try_start(&name, Duration::ZERO).is_some());
    }

    #[test]
    fn waits_are_counted_until_the_queue_advances() {
        let (scheduler, name) = scheduler();
        for expected in 1..4 {
            let guard = scheduler.try_start(&name, Duration::ZERO).unwrap();
            assert_eq!(guard.count_wait(), expected);
            guard.defer(Duration::ZERO);
        }
        let guard = scheduler.try_start(&name, Duration::ZERO).unwrap();
        guard.reset_waits();
        assert_eq!(guard.count_wait(), 1);
    }

    #[test]
    fn full_memory_keeps_its_pauses() {
        let name = |at: u64| QueueName::new("t", &format!("k{at}")).unwrap();
        let mut queues = QueueStates::default();
        for at in 0..5 {
            queues.defer(&name(at), Duration::from_secs(at), 3);
            assert_eq!(queues.count_wait(&name(at), 3), 1);
        }
        queues.defer(&name(1), Duration::from_secs(9), 3);
        assert_eq!(queues.count_wait(&name(1), 3), 2);
        assert_eq!(queues.count_wait(&name(4), 3), 1);
        let pauses: Vec<u64> = queues.deferred.values().map(Duration::as_secs).collect();
        assert_eq!(pauses, [0, 9, 2]);
    }

    #[test]
    fn panic_releases_the_queue_after_a_pause() {
        let (scheduler, name) = scheduler();
        let guard = scheduler.try_start(&name, Duration::from_secs(3600)).unwrap();
        let panics = std::panic::AssertUnwindSafe(move || {
            let _guard = guard;
            panic!("by purpose");
        });
        std::panic::catch_unwind(panics).unwrap_err();
        assert!(!scheduler.may_start(&name), "it is deferred");
        assert!(scheduler.due().is_empty() && scheduler.next_due().is_some());
        let guard = scheduler.try_start(&name, Duration::ZERO).expect("no worker has it");
        guard.defer(Duration::ZERO);
        assert_eq!(scheduler.due(), [name]);
    }
}
