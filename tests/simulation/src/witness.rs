//! The observers of the engine under test.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use txn_core::event::{Event, Observer};
use txn_core::store::Key;

use crate::counts::Counts;
use crate::process::{Log, panic_as_planned};

/// How often an observer panics that does.
const RASH: f64 = 0.02;

/// What observers of the engine told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// What was called damaged, and how.
    pub(crate) damaged: Mutex<Vec<(Key, String)>>,
    /// How much happened.
    pub(crate) counts: Mutex<Counts>,
    /// Observers panic by these dice.
    pub(crate) rash: Mutex<Option<fastrand::Rng>>,
    /// The faults are over: no further caller hangs.
    pub(crate) calm: AtomicBool,
}

/// One process's observer.
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
        let mut counts = self.told.counts.lock();
        match event {
            Event::Damaged { document, .. } => {
                self.told.damaged.lock().push((document.clone(), format!("{event:?}")));
            }
            Event::Wounded { .. } => counts.wounds += 1,
            Event::Replayed { .. } | Event::AbortedByRecovery { .. } => counts.recoveries += 1,
            Event::PartitionDropped { .. } => counts.drops += 1,
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
