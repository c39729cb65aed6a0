//! Which queues are worked on here, and which are left alone for a while.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use txn_core::clock::Clock;

use crate::name::QueueName;

/// Most queues whose pauses are remembered.
const MOST_DEFERRED: usize = 100_000;

/// The queues of a processor that are not to be taken up now.
pub(crate) struct Agenda {
    clock: Arc<dyn Clock>,
    queues: Mutex<Queues>,
}

#[derive(Default)]
struct Queues {
    /// Those that are worked on; whether events came meanwhile.
    working: BTreeMap<QueueName, bool>,
    /// When those may be looked at again that were left, on the monotonic clock.
    deferred: BTreeMap<QueueName, Duration>,
    /// How often the first event of those had to wait that wait, in a row.
    waits: BTreeMap<QueueName, u32>,
}

impl Queues {
    fn defer(&mut self, name: &QueueName, until: Duration) {
        if self.deferred.len() >= MOST_DEFERRED {
            self.deferred.clear();
        }
        self.deferred.insert(name.clone(), until);
    }

    fn wait(&mut self, name: &QueueName) -> u32 {
        if self.waits.len() >= MOST_DEFERRED {
            self.waits.clear();
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

    /// The queues whose pause is over.
    pub(crate) fn due(&self) -> Vec<QueueName> {
        let now = self.clock.monotonic();
        let mut queues = self.queues.lock();
        let due = queues.deferred.extract_if(.., |_, until| *until <= now);
        due.map(|(name, _)| name).collect()
    }

    /// When the next pause is over.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.queues.lock().deferred.values().min().copied()
    }

    /// Whether a queue may be taken up now. One that is worked on is looked at once more.
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

    /// Begins to work on a queue, unless somebody does. `pause` is for how long it is left alone if that ends in a panic.
    pub(crate) fn begin(self: &Arc<Self>, name: &QueueName, pause: Duration) -> Option<Seat> {
        match self.queues.lock().working.entry(name.clone()) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(free) => free.insert(false),
        };
        Some(Seat { agenda: self.clone(), name: name.clone(), pause, is_over: false })
    }
}

/// A queue that is worked on. However that ends, nobody is kept from it afterwards.
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

    /// Its first event has to wait for something that is down. Returns how often it had to, in a row.
    pub(crate) fn waits(&self) -> u32 {
        self.agenda.queues.lock().wait(&self.name)
    }

    /// Its first event is dealt with: whatever comes next has not waited yet.
    pub(crate) fn moves_on(&self) {
        self.agenda.queues.lock().waits.remove(&self.name);
    }

    /// Ends, and leaves the queue alone for so long.
    pub(crate) fn defer(mut self, pause: Duration) {
        self.leave(Some(pause));
    }

    /// Ends, unless events came meanwhile and it may go on: then it stays.
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
            queues.defer(&self.name, until);
        }
        self.is_over = true;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if !self.is_over {
            if std::thread::panicking() {
                tracing::error!(queue = %self.name, "working on a queue panicked: it is left for later");
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
    fn one_at_a_time_works_on_a_queue_and_hears_of_what_came_meanwhile() {
        let (agenda, name) = agenda();
        let mut seat = agenda.begin(&name, Duration::ZERO).unwrap();
        assert!(agenda.begin(&name, Duration::ZERO).is_none());
        assert!(!agenda.may_take(&name));
        assert!(!seat.end(true), "events came");
        assert!(seat.end(true));
        assert!(agenda.may_take(&name) && agenda.begin(&name, Duration::ZERO).is_some());
    }

    #[test]
    fn what_waits_is_counted_until_it_moves_on() {
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
    fn what_panics_lets_its_queue_go_after_a_pause() {
        let (agenda, name) = agenda();
        let seat = agenda.begin(&name, Duration::from_secs(3600)).unwrap();
        let panics = std::panic::AssertUnwindSafe(move || {
            let _seat = seat;
            panic!("by purpose");
        });
        std::panic::catch_unwind(panics).unwrap_err();
        assert!(!agenda.may_take(&name), "it is left alone");
        assert!(agenda.due().is_empty() && agenda.next_due().is_some());
        let seat = agenda.begin(&name, Duration::ZERO).expect("nobody works on it");
        seat.defer(Duration::ZERO);
        assert_eq!(agenda.due(), [name]);
    }
}
