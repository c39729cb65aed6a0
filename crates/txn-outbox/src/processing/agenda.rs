//! The queues that a processor works on or defers.

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

/// The queues that a processor must not start now.
pub(crate) struct Agenda {
    clock: Arc<dyn Clock>,
    queues: Mutex<Queues>,
}

#[derive(Default)]
struct Queues {
    /// The queues in work. The flag says whether events arrived in the meantime.
    working: BTreeMap<QueueName, bool>,
    /// The deferred queues, with the ends of their pauses (monotonic clock).
    deferred: BTreeMap<QueueName, Duration>,
    /// The consecutive waits of each queue's first event.
    waits: BTreeMap<QueueName, u32>,
}

impl Queues {
    /// Remembers a pause. Beyond the bound, the next poll finds the queue again.
    fn defer(&mut self, name: &QueueName, until: Duration, most: usize) {
        if self.deferred.len() < most || self.deferred.contains_key(name) {
            self.deferred.insert(name.clone(), until);
        }
    }

    /// Counts a wait. Beyond the bound, each wait counts as the first.
    fn wait(&mut self, name: &QueueName, most: usize) -> u32 {
        if self.waits.len() >= most && !self.waits.contains_key(name) {
            return 1;
        }
        let waits = self.waits.entry(name.clone()).or_default();
        *waits = waits.saturating_add(1);
        *waits
    }
}

impl fmt::Debug for Agenda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agenda").finish_non_exhaustive()
    }
}

impl Agenda {
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
    pub(crate) fn may_take(&self, name: &QueueName) -> bool {
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
    pub(crate) fn begin(self: &Arc<Self>, name: &QueueName, pause: Duration) -> Option<Seat> {
        match self.queues.lock().working.entry(name.clone()) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(free) => free.insert(false),
        };
        Some(Seat { agenda: self.clone(), name: name.clone(), pause, is_over: false })
    }
}

/// The exclusive right of one worker to a queue. The drop always releases the queue.
#[derive(Debug)]
pub(crate) struct Seat {
    agenda: Arc<Agenda>,
    name: QueueName,
    pause: Duration,
    is_over: bool,
}

impl Seat {
    pub(crate) fn name(&self) -> &QueueName {
        &self.name
    }

    /// Counts a wait of the first event for an outage. Returns the consecutive waits.
    pub(crate) fn waits(&self) -> u32 {
        self.agenda.queues.lock().wait(&self.name, MOST_DEFERRED)
    }

    /// Resets the waits, because the first event is done.
    pub(crate) fn moves_on(&self) {
        self.agenda.queues.lock().waits.remove(&self.name);
    }

    /// Ends the work, and defers the queue for `pause`.
    pub(crate) fn defer(mut self, pause: Duration) {
        self.leave(Some(pause));
    }

    /// Ends the work. Returns `false`, and keeps the queue, if new events arrived and `may_go_on`.
    pub(crate) fn end(&mut self, may_go_on: bool) -> bool {
        {
            let mut queues = self.agenda.queues.lock();
            let again = queues.working.get_mut(&self.name).filter(|again| **again && may_go_on);
            if let Some(again) = again {
                *again = false;
                return false;
            }
            queues.working.remove(&self.name);
        }
        self.is_over = true;
        true
    }

    fn leave(&mut self, pause: Option<Duration>) {
        let until = pause.map(|pause| self.agenda.clock.monotonic() + pause);
        let mut queues = self.agenda.queues.lock();
        queues.working.remove(&self.name);
        if let Some(until) = until {
            queues.defer(&self.name, until, MOST_DEFERRED);
        }
        self.is_over = true;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if !self.is_over {
            if std::thread::panicking() {
                tracing::error!(queue = %self.name, "the worker of a queue panicked: the queue is deferred");
            }
            self.leave(Some(self.pause));
        }
    }
}

#[cfg(test)]
mod tests {
    use txn_core::clock::SystemClock;

    use super::*;

    fn agenda() -> (Arc<Agenda>, QueueName) {
        let clock = Arc::new(SystemClock::default());
        (Agenda::new(clock), QueueName::new("t", "k").unwrap())
    }

    #[test]
    fn queue_has_one_worker_and_reports_new_events() {
        let (agenda, name) = agenda();
        let mut seat = agenda.begin(&name, Duration::ZERO).unwrap();
        assert!(agenda.begin(&name, Duration::ZERO).is_none());
        assert!(!agenda.may_take(&name));
        assert!(!seat.end(true), "events came");
        assert!(seat.end(true));
        assert!(agenda.may_take(&name) && agenda.begin(&name, Duration::ZERO).is_some());
    }

    #[test]
    fn waits_are_counted_until_the_queue_advances() {
        let (agenda, name) = agenda();
        for expected in 1..4 {
            let seat = agenda.begin(&name, Duration::ZERO).unwrap();
            assert_eq!(seat.waits(), expected);
            seat.defer(Duration::ZERO);
        }
        let seat = agenda.begin(&name, Duration::ZERO).unwrap();
        seat.moves_on();
        assert_eq!(seat.waits(), 1);
    }

    #[test]
    fn full_memory_keeps_its_pauses() {
        let name = |at: u64| QueueName::new("t", &format!("k{at}")).unwrap();
        let mut queues = Queues::default();
        for at in 0..5 {
            queues.defer(&name(at), Duration::from_secs(at), 3);
            assert_eq!(queues.wait(&name(at), 3), 1);
        }
        queues.defer(&name(1), Duration::from_secs(9), 3);
        assert_eq!(queues.wait(&name(1), 3), 2);
        assert_eq!(queues.wait(&name(4), 3), 1);
        let pauses: Vec<u64> = queues.deferred.values().map(Duration::as_secs).collect();
        assert_eq!(pauses, [0, 9, 2]);
    }

    #[test]
    fn panic_releases_the_queue_after_a_pause() {
        let (agenda, name) = agenda();
        let seat = agenda.begin(&name, Duration::from_secs(3600)).unwrap();
        let panics = std::panic::AssertUnwindSafe(move || {
            let _seat = seat;
            panic!("by purpose");
        });
        std::panic::catch_unwind(panics).unwrap_err();
        assert!(!agenda.may_take(&name), "it is left alone");
        assert!(agenda.due().is_empty() && agenda.next_due().is_some());
        let seat = agenda.begin(&name, Duration::ZERO).expect("no worker has it");
        seat.defer(Duration::ZERO);
        assert_eq!(agenda.due(), [name]);
    }
}
