//! The phases of an attempt: read, lock, validate, commit.
//!
//! An attempt validates its reads after the acknowledgement of every lock, and commits by one
//! write.

use std::fmt;

use crate::record::Op;
use crate::rule::{Rule, Rules};

/// The phase of an attempt on its way to the commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// The closure runs.
    #[default]
    Reading,
    /// The attempt locks its writes, and the reads that need a lock.
    Locking,
    /// The attempt validates the reads that it did not lock.
    Validating,
    /// The attempt only holds locks, and verifies its locks once more. There is nothing to commit.
    Verifying,
    /// The attempt sends the write that decides.
    Committing,
}

/// The remaining work of an attempt, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Whether documents must be locked, or new contents tried out. The same request sends both.
    pub to_lock: bool,
    /// Documents were read, are not locked, and are not validated.
    pub to_validate: bool,
    /// A document has to be written, deleted or inserted.
    pub commits: bool,
}

impl Phase {
    /// The phase after this one, which is complete.
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

/// Whether absences that were only read need placeholders instead of a validation.
///
/// An absence has no version that could be validated together with other reads. So an absence is
/// validated alone, or not at all.
///
/// `writes`: whether the transaction writes another document. `only_read`: the number of documents
/// that the transaction only read. `absent`: the number of absent documents among these.
#[must_use]
pub fn locks_absences(rules: &Rules, writes: bool, only_read: usize, absent: usize) -> bool {
    let verifiable = if writes { only_read <= 1 } else { absent <= 1 };
    !verifiable && rules.decides(Rule::LockAbsentReads)
}

/// Whether a read is among the next to validate: absences first, alone.
#[must_use]
pub fn validated_first(rules: &Rules, absent: bool, all_absent: bool) -> bool {
    let last = !rules.decides(Rule::AbsenceFirst);
    absent != (last && !all_absent)
}

/// The intended change of a locked document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Write the document, whether or not it existed.
    Put,
    /// Write the document, which must not have existed.
    Insert,
    /// Delete the document, if it existed.
    Delete,
    /// An insert that the same transaction deleted again.
    ///
    /// The commit writes nothing; the document must not have existed.
    Withdrawn,
    /// Write nothing.
    Read,
}

/// An error: a document that must not have existed exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exists;

/// The operation on a participant, by the content under its lock.
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
