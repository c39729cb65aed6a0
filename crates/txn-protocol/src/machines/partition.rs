//! The partition of one day: creation and drop.
//!
//! A read chooses the next step. Only an acknowledged touch of the domain document says that a day
//! is gone.

use std::time::Duration;

use super::domain::{DayStanding, DomainDocument};
use crate::ids::Day;
use crate::rule::{Rule, Rules};

/// The longest time from a lift's note to its request's arrival.
///
/// The request carries no condition. So a day is not dropped while such a request may still arrive.
pub const LIFT_SETTLES: Duration = Duration::from_secs(600);

/// How long after its note a block may be lifted.
pub const LIFT_WITHIN: Duration = Duration::from_secs(60);

/// The next step of a process that makes a day's partition.
///
/// The domain document names the collection before an alias leads to it. So a process with a slow
/// clock that wakes late never revives a dropped day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Making {
    /// Touch the domain document.
    Ask,
    /// Create a collection.
    Create,
    /// Name the collection in the domain document.
    Name,
    /// Add the day's alias to the official collection. If that collection is missing, another
    /// process dropped it, or it is lost: ask again.
    AddAlias(String),
    /// Records can be written.
    Ready,
    /// The day was dropped.
    Gone,
}

impl Making {
    /// The step after the answer of the domain document.
    #[must_use]
    pub fn asked(document: &DomainDocument, rules: &Rules, day: Day) -> Self {
        match document.day(rules, day) {
            DayStanding::Gone => Self::Gone,
            DayStanding::Official(name) => Self::AddAlias(name.to_owned()),
            DayStanding::Unmade => Self::Create,
        }
    }

    /// The step after the attempt to name the own collection.
    ///
    /// Another process may have named its collection first, or the day may be gone. The own
    /// collection was never official then, and is dropped.
    #[must_use]
    pub fn named(document: &DomainDocument, day: Day) -> Self {
        match document.partitions.get(&day) {
            Some(official) => Self::AddAlias(official.clone()),
            None => Self::Gone,
        }
    }
}

/// The next step of a janitor that drops a day.
///
/// The janitor has resolved all transactions of the day before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dropping {
    /// Block writes to the partition, after the read of the domain document.
    Block,
    /// Scan the whole partition for open records.
    Look,
    /// Move the watermark. The write is conditioned on the version of the domain document that was
    /// read before the block.
    MoveWatermark,
    /// After a failure, ask whether the day is gone. If not, note the lift of the block.
    NoteLift,
    /// Lift the block.
    Lift,
    /// Delete the partition of a day that is gone.
    Delete,
    /// The day is dropped.
    Dropped,
    /// The day is left for a later pass.
    Left,
}

impl Dropping {
    /// The first step after the read of the domain document.
    #[must_use]
    pub fn begin(rules: &Rules) -> Self {
        if rules.decides(Rule::BlockBeforeDrop) { Self::Block } else { Self::Look }
    }

    /// The step after this one; after a note, [`Self::noted`] decides.
    ///
    /// `yes` after a scan: nothing is open. `yes` after the watermark: an acknowledged write moved
    /// the watermark.
    #[must_use]
    pub fn next(self, rules: &Rules, yes: bool) -> Self {
        match (self, yes) {
            (Self::Block, _) => Self::Look,
            (Self::Look, false) if rules.decides(Rule::DropOnlyResolved) => Self::NoteLift,
            (Self::Look, _) => Self::MoveWatermark,
            (Self::MoveWatermark, true) => Self::Delete,
            (Self::MoveWatermark, false) | (Self::NoteLift, _) => Self::NoteLift,
            (Self::Lift | Self::Left, _) => Self::Left,
            (Self::Delete | Self::Dropped, _) => Self::Dropped,
        }
    }

    /// The step after the note, by the acknowledged domain document.
    ///
    /// A day before one that is gone is gone, too, and its block stays.
    #[must_use]
    pub fn noted(document: &DomainDocument, day: Day, mark: &str) -> Self {
        if document.is_dropped(day) {
            Self::Delete
        } else if document.lifted.get(&day).is_some_and(|noted| noted == mark) {
            Self::Lift
        } else {
            Self::Left
        }
    }
}

/// Whether a day may be dropped, given its noted lift.
///
/// `lift_known_for` is the age of the note.
#[must_use]
pub fn may_drop(rules: &Rules, lift_known_for: Option<Duration>) -> bool {
    lift_known_for.is_none_or(|known| known >= LIFT_SETTLES) || !rules.decides(Rule::LiftSettles)
}
