//! The partition of one day: how it is made, and how it is dropped. What is read chooses the next step; that a day is gone is
//! said by an acknowledged touch of the domain document alone.

use std::time::Duration;

use super::domain::{DayStanding, DomainDocument};
use crate::ids::Day;
use crate::rule::{Rule, Rules};

/// How long a request to lift a block may be under way after it was noted. It carries no condition: no day is dropped
/// into which one may still come.
pub const LIFT_SETTLES: Duration = Duration::from_secs(600);

/// What was noted for so long is not lifted any more.
pub const LIFT_WITHIN: Duration = Duration::from_secs(60);

/// How far a process is with the partition of a day. The name is given before it is official: so a process with a slow clock
/// that wakes late never revives a dropped day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Making {
    /// It touches the domain document.
    Ask,
    /// It creates a collection.
    Create,
    /// It names that in the domain document.
    Name,
    /// It adds the day's alias to the official one. Where that is missing it was dropped in between, or is lost: ask again.
    AddAlias(String),
    /// Records can be written.
    Ready,
    /// The day was dropped.
    Gone,
}

impl Making {
    /// What follows the answer of the domain document.
    #[must_use]
    pub fn asked(document: &DomainDocument, rules: &Rules, day: Day) -> Self {
        match document.day(rules, day) {
            DayStanding::Gone => Self::Gone,
            DayStanding::Official(name) => Self::AddAlias(name.to_owned()),
            DayStanding::Unmade => Self::Create,
        }
    }

    /// What follows once the own collection was to be named. Another process may have been first, or the day be gone: the own one
    /// was never official then, and is dropped.
    #[must_use]
    pub fn named(document: &DomainDocument, day: Day) -> Self {
        match document.partitions.get(&day) {
            Some(official) => Self::AddAlias(official.clone()),
            None => Self::Gone,
        }
    }
}

/// How far a janitor is with dropping a day, all of whose transactions were resolved before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dropping {
    /// It blocks writes to the partition, having read the domain document.
    Block,
    /// It looks completely whether anything in it is open.
    Look,
    /// It moves the watermark, on the version of the domain document that was read before the block.
    MoveWatermark,
    /// Something is in the way: it asks whether the day is gone, and notes that it lifts the block if not.
    NoteLift,
    /// It lifts the block.
    Lift,
    /// It deletes the partition of a day that is gone.
    Delete,
    /// The day is dropped.
    Dropped,
    /// The day is left for another time.
    Left,
}

impl Dropping {
    /// The first step, once the domain document was read.
    #[must_use]
    pub fn begin(rules: &Rules) -> Self {
        if rules.decides(Rule::BlockBeforeDrop) { Self::Block } else { Self::Look }
    }

    /// The step after this one. `yes`: of a look, that nothing is open; of the watermark, that it is moved by an acknowledged
    /// write.
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

    /// The step after the note, by the domain document as it is acknowledged. A day before one that is gone is gone, too, and
    /// its block stays.
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

/// Whether a day may be dropped, by how long it is known that somebody lifts or lifted its block.
#[must_use]
pub fn may_drop(rules: &Rules, lift_known_for: Option<Duration>) -> bool {
    lift_known_for.is_none_or(|known| known >= LIFT_SETTLES) || !rules.decides(Rule::LiftSettles)
}
