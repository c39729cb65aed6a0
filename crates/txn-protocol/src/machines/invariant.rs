//! Runtime invariants by name.
//!
//! A violation is a bug of this library. The caller gets an error, the attempt stops, and the
//! process goes on.

use std::fmt;

use super::attempt::Phase;
use crate::ids::CommitVersion;

/// A condition that always holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Invariant {
    /// A held lock was acknowledged, and is not in doubt.
    HeldLockAcknowledged,
    /// Only the writer of a record replaces the record. The owner's last write seals the writer.
    RecordFromWriter,
    /// A commit version is later than every version that the commit overwrites.
    CommitVersionLater,
    /// An attempt passes through its phases in their order.
    PhasesInOrder,
}

impl Invariant {
    /// The name of the invariant in reports.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::HeldLockAcknowledged => "HELD_LOCK_ACKNOWLEDGED",
            Self::RecordFromWriter => "RECORD_FROM_WRITER",
            Self::CommitVersionLater => "COMMIT_VERSION_LATER",
            Self::PhasesInOrder => "PHASES_IN_ORDER",
        }
    }

    /// Succeeds if the invariant holds.
    ///
    /// # Errors
    /// The invariant, if it is violated.
    pub fn check(self, holds: bool) -> Result<(), Self> {
        if holds { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// Checks that a commit version is later than all overwritten versions.
///
/// # Errors
/// [`Invariant::CommitVersionLater`].
pub fn check_commit_version(
    commit: CommitVersion,
    overwritten: impl IntoIterator<Item = Option<CommitVersion>>,
) -> Result<(), Invariant> {
    let later = overwritten.into_iter().flatten().all(|tid| tid < commit);
    Invariant::CommitVersionLater.check(later)
}

/// Checks that a phase may follow another phase.
///
/// # Errors
/// [`Invariant::PhasesInOrder`].
pub fn check_order(before: Phase, after: Phase, validates_first: bool) -> Result<(), Invariant> {
    Invariant::PhasesInOrder.check(after > before || validates_first)
}
