//! The power losses, by seed.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

use crate::fault::Fault;

/// The time of the load before a power loss, in milliseconds.
const LOAD: std::ops::Range<u64> = 500..6_000;

/// The number of writes and syncs until the power fails.
///
/// A round of the load has thousands of them, a start has hundreds.
const CHANGES: std::ops::Range<u64> = 0..600;

/// The time until the power fails again, in milliseconds. The time begins with the first change of
/// a start.
const START: std::ops::Range<u64> = 0..8_000;

/// One power loss, with its repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Round {
    pub(super) fault: Fault,
    /// The time of the load before the fault.
    pub(super) load: Duration,
    /// The number of disk changes until the power fails. `None` if the fault has no such number.
    pub(super) changes: Option<u64>,
    /// The second failure of the power, during the start.
    pub(super) again: Option<Again>,
    /// The seed of the data that is lost.
    pub(super) seed: u64,
}

/// A second failure of the power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// At this time after the first change of the disks.
    After(Duration),
    /// At this number of changes of the disks.
    AtChange(u64),
}

/// Endless rounds. Equal seeds and faults give equal rounds.
#[derive(Debug)]
pub(super) struct Schedule {
    random: Rng,
    faults: Vec<Fault>,
    /// The remaining faults of the current turn.
    turn: Vec<Fault>,
}

impl Schedule {
    /// Creates the schedule of these faults.
    ///
    /// Without faults, the schedule has all faults.
    ///
    /// # Errors
    /// If a fault cannot happen here.
    pub(super) fn new(seed: u64, faults: &[Fault]) -> Result<Self, String> {
        if let Some(fault) = faults.iter().find(|fault| !Fault::OF_POWER.contains(fault)) {
            return Err(format!("{fault} is no fault of power losses"));
        }
        let faults = if faults.is_empty() { &Fault::OF_POWER } else { faults };
        let random = Rng::with_seed(seed);
        Ok(Self { random, faults: faults.to_vec(), turn: Vec::new() })
    }

    /// Returns the names of all faults that the schedule has.
    pub(super) fn planned(&self) -> Vec<String> {
        self.faults.iter().map(ToString::to_string).collect()
    }
}

impl Iterator for Schedule {
    type Item = Round;

    fn next(&mut self) -> Option<Round> {
        if self.turn.is_empty() {
            self.turn.clone_from(&self.faults);
            self.random.shuffle(&mut self.turn);
        }
        let fault = self.turn.pop()?;
        let load = Duration::from_millis(self.random.u64(LOAD));
        let changes = self.random.u64(CHANGES);
        let again = match self.random.bool() {
            true => Again::After(Duration::from_millis(self.random.u64(START))),
            false => Again::AtChange(self.random.u64(CHANGES)),
        };
        Some(Round {
            fault,
            load,
            changes: (fault == Fault::CutPowerAtWrite).then_some(changes),
            again: (fault == Fault::CutPowerAtStart).then_some(again),
            seed: self.random.u64(..),
        })
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} after {:.1} s", self.fault, self.load.as_secs_f64())?;
        if let Some(changes) = self.changes {
            write!(f, " and {changes} changes")?;
        }
        match self.again {
            Some(Again::After(after)) => {
                write!(f, ", and {:.1} s after the first change of the start", after.as_secs_f64())
            }
            Some(Again::AtChange(changes)) => {
                write!(f, ", and after {changes} changes of the start")
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(seed: u64, faults: &[Fault]) -> Vec<Round> {
        Schedule::new(seed, faults).expect("known faults").take(30).collect()
    }

    #[test]
    fn equal_seeds_give_equal_rounds() {
        assert_eq!(rounds(7, &[]), rounds(7, &[]));
        assert_ne!(rounds(7, &[]), rounds(8, &[]));
    }

    #[test]
    fn only_wanted_faults_happen() {
        let all = rounds(1, &[]);
        for fault in Fault::OF_POWER {
            assert_eq!(all.iter().filter(|round| round.fault == fault).count(), 10);
        }
        let one = rounds(1, &[Fault::CutPowerAtWrite]);
        assert!(one.iter().all(|round| round.changes.is_some() && round.again.is_none()));
        assert!(Schedule::new(1, &[Fault::KillPrimary]).is_err());
    }
}
