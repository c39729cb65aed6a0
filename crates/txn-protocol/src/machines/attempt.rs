//! The phases of an attempt: it locks what it writes, validates what it only read once every lock is acknowledged, and
//! commits by one write.

use std::fmt;

use crate::record::Op;
use crate::rule::{Rule, Rules};

/// Where an attempt is on its way to the commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Its closure runs.
    #[default]
    Reading,
    /// It locks what it writes, and what has to be locked of what it read.
    Locking,
    /// It looks whether what it only read is still what it was.
    Validating,
    /// It holds locks and has nothing to commit: it looks whether all of them still stand.
    Verifying,
    /// It writes what decides.
    Committing,
}

/// What an attempt still has to do, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Documents are to be locked, or contents to be tried out beside the locks.
    pub to_lock: bool,
    /// Documents were read, are not locked, and are not validated.
    pub to_validate: bool,
    /// Something is to be written, deleted or inserted.
    pub commits: bool,
}

impl Phase {
    /// The phase after this one, which is through.
    #[must_use]
    pub fn next(self, rules: &Rules, footprint: Footprint) -> Self {
        let early = !rules.decides(Rule::ValidateAfterLocks);
        let validates = footprint.to_validate && rules.decides(Rule::ValidateReads);
        let ends = if footprint.commits { Self::Committing } else { Self::Verifying };
        match self {
            Self::Reading if early && validates => Self::Validating,
            Self::Reading if footprint.to_lock => Self::Locking,
            Self::Validating if early && footprint.to_lock => Self::Locking,
            Self::Reading | Self::Locking if validates && !early => Self::Validating,
            Self::Reading | Self::Locking | Self::Validating => ends,
            Self::Verifying | Self::Committing => self,
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reading => "reading",
            Self::Locking => "locking",
            Self::Validating => "validating",
            Self::Verifying => "verifying",
            Self::Committing => "committing",
        })
    }
}

/// Whether absences that were only read are locked by placeholders, rather than validated. An absence has no version that could
/// be validated together with others: it is validated alone, or not at all.
///
/// `writes`: whether the transaction writes something else. `only_read`: how many documents it only read, and `absent` how
/// many of them were absent.
#[must_use]
pub fn locks_absences(rules: &Rules, writes: bool, only_read: usize, absent: usize) -> bool {
    let verifiable = if writes { only_read <= 1 } else { absent <= 1 };
    !verifiable && rules.decides(Rule::LockAbsentReads)
}

/// Of reads that are to be validated, whether this one has its turn: absences first, alone.
#[must_use]
pub fn validated_first(rules: &Rules, absent: bool, all_absent: bool) -> bool {
    let last = !rules.decides(Rule::AbsenceFirst);
    absent != (last && !all_absent)
}

/// What a transaction wants to do with a document that it locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Write it, whether or not it existed.
    Put,
    /// Write it; it must not have existed.
    Insert,
    /// Delete it, if it existed.
    Delete,
    /// Nothing; it must not have existed.
    Withdrawn,
    /// Nothing.
    Read,
}

/// A document that must not have existed exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exists;

/// What becomes of a participant, by what stood under its lock.
///
/// # Errors
/// [`Exists`].
pub fn operation(change: Change, exists: bool) -> Result<Op, Exists> {
    match (change, exists) {
        (Change::Insert | Change::Withdrawn, true) => Err(Exists),
        (Change::Put | Change::Insert, false) => Ok(Op::Insert),
        (Change::Put, true) => Ok(Op::Write),
        (Change::Delete, true) => Ok(Op::Delete),
        (Change::Delete | Change::Withdrawn, false) | (Change::Read, _) => Ok(Op::Read),
    }
}
