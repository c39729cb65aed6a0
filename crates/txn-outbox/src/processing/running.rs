//! The running handlers, and the detection of blocked threads.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use txn_core::clock::Clock;

use crate::figures::Counters;
use crate::queue::event::Event;
use crate::queue::source::Claim;

/// A poll of a handler beyond this time counts as blocking.
const BLOCKS: Duration = Duration::from_millis(500);

/// The running handlers.
#[derive(Debug, Default)]
pub(crate) struct Running(Mutex<Runs>);

#[derive(Debug, Default)]
struct Runs {
    next: u64,
    runs: BTreeMap<u64, Run>,
}

/// A running handler.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    since: Duration,
    pub(crate) claim: Claim,
    pub(crate) event: Event,
}

/// Counts a handler as running until this value is dropped.
#[derive(Debug)]
pub(crate) struct RunGuard {
    running: Arc<Running>,
    number: u64,
}

impl Running {
    pub(crate) fn register(
        self: &Arc<Self>,
        since: Duration,
        claim: &Claim,
        event: &Event,
    ) -> RunGuard {
        let mut runs = self.0.lock();
        runs.next += 1;
        let number = runs.next;
        runs.runs.insert(number, Run { since, claim: claim.clone(), event: event.clone() });
        RunGuard { running: self.clone(), number }
    }

    /// The handlers that started at or before this time, by number.
    pub(crate) fn since(&self, before: Duration) -> Vec<(u64, Run)> {
        let runs = self.0.lock();
        let old = runs.runs.iter().filter(|(_, run)| run.since <= before);
        old.map(|(number, run)| (*number, run.clone())).collect()
    }

    /// Removes a handler.
    pub(crate) fn remove(&self, number: u64) {
        self.0.lock().runs.remove(&number);
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        self.running.remove(self.number);
    }
}

/// Runs a handler, and reports polls that block the thread.
pub(crate) async fn timed<T>(
    clock: &dyn Clock,
    counters: &Counters,
    topic: &str,
    handler: impl Future<Output = T>,
) -> T {
    let mut handler = pin!(handler);
    std::future::poll_fn(|cx| {
        let began = clock.monotonic();
        let polled = handler.as_mut().poll(cx);
        let took = clock.monotonic().saturating_sub(began);
        // Logs only the 1st, 2nd, 4th, 8th … time, so that a blocking handler does not fill the
        // log.
        if took >= BLOCKS && counters.blocked().is_power_of_two() {
            tracing::warn!(
                topic,
                ?took,
                "a handler blocks its thread: use tokio::task::spawn_blocking for work that does not await"
            );
        }
        polled
    })
    .await
}
