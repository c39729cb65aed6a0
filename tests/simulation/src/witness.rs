//! The observers of the engine under test.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use txn_core::AttemptId;
use txn_core::event::{Event, Observer};
use txn_core::store::Key;

use crate::counts::Counts;
use crate::scenario::ATTEMPT_TIMEOUT;
use txn_sim::machine::{Log, panic_as_planned};

/// The probability that an observer panics, if observers panic.
const RASH: f64 = 0.02;

/// The age up to which an attempt is within its limit.
///
/// The age holds for any clock of a calm run.
const IN_TIME: Duration = ATTEMPT_TIMEOUT.saturating_sub(Duration::from_secs(1));

/// The events that observers of the engine received.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The documents that were reported as damaged, and the events.
    pub(crate) damaged: Mutex<Vec<(Key, String)>>,
    /// The counts of the run.
    pub(crate) counts: Mutex<Counts>,
    /// Random numbers for panics of observers.
    pub(crate) rash: Mutex<Option<fastrand::Rng>>,
    /// Whether the faults are over: no further caller hangs.
    pub(crate) calm: AtomicBool,
    /// The attempts with a running closure, and its start.
    at_work: Mutex<BTreeMap<AttemptId, Instant>>,
    /// The attempts that a process took for dead meanwhile, and that process.
    pub(crate) buried: Mutex<Vec<(AttemptId, String)>>,
}

impl Told {
    /// Notes that the closure of an attempt runs.
    ///
    /// The note ends when the result is dropped.
    pub(crate) fn at_work(&self, tid: AttemptId) -> AtWork<'_> {
        self.at_work.lock().insert(tid, Instant::now());
        AtWork { told: self, tid }
    }

    fn is_at_work(&self, tid: AttemptId) -> bool {
        let since = self.at_work.lock().get(&tid).copied();
        since.is_some_and(|since| since.elapsed() < IN_TIME)
    }
}

/// A closure that runs.
pub(crate) struct AtWork<'a> {
    told: &'a Told,
    tid: AttemptId,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.told.at_work.lock().remove(&self.tid);
    }
}

/// The observer of one process.
pub(crate) struct Witness {
    pub(crate) name: String,
    pub(crate) told: Arc<Told>,
    pub(crate) log: Arc<Log>,
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Observer for Witness {
    fn on_event(&self, event: &Event) {
        self.log.line(|| format!("{} {event:?}", self.name));
        if let Event::AbortedByRecovery { tid, .. } = event
            && self.told.is_at_work(*tid)
        {
            self.told.buried.lock().push((*tid, self.name.clone()));
        }
        let mut counts = self.told.counts.lock();
        match event {
            Event::Damaged { document, .. } => {
                self.told.damaged.lock().push((document.clone(), format!("{event:?}")));
            }
            Event::Wounded { .. } => counts.wounds += 1,
            Event::RolledForward { .. } | Event::AbortedByRecovery { .. } => counts.recoveries += 1,
            Event::PartitionDropped { .. } => counts.drops += 1,
            Event::GroupFormed { transactions, .. } => counts.composed += *transactions as u64,
            Event::HandedOff { documents, .. } => counts.handed_off += documents.len() as u64,
            _ => {}
        }
        let rash = self.told.rash.lock().as_mut().is_some_and(|dice| dice.f64() < RASH);
        if rash {
            counts.fault("observers panicked", 1);
            drop(counts);
            self.log.line(|| format!("{}: its observer panics", self.name));
            panic_as_planned();
        }
    }
}
