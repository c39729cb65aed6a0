//! Counters of a processor.

use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use txn_core::Domain;
use txn_core::clock::Clock;
use txn_lock::instance::wall_ms;

use crate::queue::event::Event;

/// The counters of a processor since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Figures {
    /// The number of handled events.
    pub handled: u64,
    /// The number of failed deliveries.
    pub failed: u64,
    /// The number of deliveries that waited out an outage.
    ///
    /// Waits do not count as failures.
    pub waited: u64,
    /// The number of events that became dead letters.
    pub set_aside: u64,
    /// How often a handler blocked its thread for over half a second.
    ///
    /// Blocking work belongs into `spawn_blocking`.
    pub blocked: u64,
    /// How often a handler blocked its thread beyond the limit.
    ///
    /// The processor released the shard of each such handler.
    pub stalled: u64,
    /// The handled events per second since the start.
    pub per_second: f64,
    /// The mean time from emit to handling, in milliseconds.
    ///
    /// The difference of two wall clocks: of the emitting process and of this process.
    pub mean_lag_ms: f64,
    /// The time from emit to handling of the last event, in milliseconds.
    pub last_lag_ms: u64,
    /// The longest time from emit to handling, in milliseconds.
    pub longest_lag_ms: u64,
}

#[derive(Debug)]
pub(crate) struct Counters {
    began: Duration,
    sums: Mutex<Sums>,
}

#[derive(Debug, Default)]
struct Sums {
    handled: u64,
    failed: u64,
    waited: u64,
    set_aside: u64,
    blocked: u64,
    stalled: u64,
    lag_ms: u64,
    last_lag_ms: u64,
    longest_lag_ms: u64,
}

impl Counters {
    pub(crate) fn new(clock: &dyn Clock) -> Self {
        Self { began: clock.monotonic(), sums: Mutex::default() }
    }

    pub(crate) fn handled(&self, event: &Event, domain: &Domain) {
        let lag = wall_ms(domain).saturating_sub(event.waits_since_ms());
        let mut sums = self.sums.lock();
        sums.handled += 1;
        sums.lag_ms = sums.lag_ms.saturating_add(lag);
        sums.last_lag_ms = lag;
        sums.longest_lag_ms = sums.longest_lag_ms.max(lag);
    }

    pub(crate) fn failed(&self) {
        self.sums.lock().failed += 1;
    }

    pub(crate) fn waited(&self) {
        self.sums.lock().waited += 1;
    }

    pub(crate) fn set_aside(&self) {
        self.sums.lock().set_aside += 1;
    }

    /// Counts a blocked thread. Returns the new count.
    pub(crate) fn blocked(&self) -> u64 {
        let mut sums = self.sums.lock();
        sums.blocked += 1;
        sums.blocked
    }

    pub(crate) fn stalled(&self) {
        self.sums.lock().stalled += 1;
    }

    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    pub(crate) fn figures(&self, clock: &dyn Clock) -> Figures {
        let seconds = clock.monotonic().saturating_sub(self.began).as_secs_f64();
        let sums = self.sums.lock();
        let Sums { handled, failed, waited, set_aside, blocked, stalled, .. } = *sums;
        let Sums { lag_ms, last_lag_ms, longest_lag_ms, .. } = *sums;
        Figures {
            handled,
            failed,
            waited,
            set_aside,
            blocked,
            stalled,
            per_second: if seconds > 0.0 { handled as f64 / seconds } else { 0.0 },
            mean_lag_ms: if handled > 0 { lag_ms as f64 / handled as f64 } else { 0.0 },
            last_lag_ms,
            longest_lag_ms,
        }
    }
}
