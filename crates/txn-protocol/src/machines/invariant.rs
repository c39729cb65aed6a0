//! What always holds, by name. Where it does not, there is an error in this library, and an error for the caller: nothing
//! goes on, and no process is brought down.

use std::fmt;

use super::attempt::Phase;
use crate::ids::CommitVersion;

/// What always holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Invariant {
    /// A lock that counts as held was acknowledged, and nothing about it is in doubt.
    HeldLockAcknowledged,
    /// A record is replaced only through its slot, which the owner's last write seals.
    RecordFromSlot,
    /// A commit tid is later than that of everything it overwrites.
    CommitTidLater,
    /// An attempt goes through its phases in their order.
    PhasesInOrder,
}

impl Invariant {
    /// Its name in reports.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::HeldLockAcknowledged => "HELD_LOCK_ACKNOWLEDGED",
            Self::RecordFromSlot => "RECORD_FROM_SLOT",
            Self::CommitTidLater => "COMMIT_TID_LATER",
            Self::PhasesInOrder => "PHASES_IN_ORDER",
        }
    }

    /// Nothing, if it holds.
    ///
    /// # Errors
    /// Itself, if it does not.
    pub fn check(self, holds: bool) -> Result<(), Self> {
        if holds { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// Whether a commit tid is later than those that it overwrites.
///
/// # Errors
/// [`Invariant::CommitTidLater`].
pub fn check_commit_version(
    commit: CommitVersion,
    overwritten: impl IntoIterator<Item = Option<CommitVersion>>,
) -> Result<(), Invariant> {
    let later = overwritten.into_iter().flatten().all(|tid| tid < commit);
    Invariant::CommitTidLater.check(later)
}

/// Whether a phase may follow another.
///
/// # Errors
/// [`Invariant::PhasesInOrder`].
pub fn check_order(before: Phase, after: Phase, validates_first: bool) -> Result<(), Invariant> {
    Invariant::PhasesInOrder.check(after > before || validates_first)
}
