//! A state: the partitions of the day, the document that rules them, and how far everybody is.

use super::{PROCESSES, UNASKED};
use crate::state::{Mark, Told};

/// One physical partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Partition {
    pub(super) exists: bool,
    pub(super) blocked: bool,
    pub(super) record: Mark,
}

/// The document that rules the domain, as far as this day goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Domain {
    pub(super) version: u8,
    pub(super) dropped: bool,
    pub(super) official: u8,
    /// The partition of the day that is gone, which may still stand.
    pub(super) dropping: u8,
}

/// The one document, which the transaction holds at the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Held {
    /// Locked.
    #[default]
    Locked,
    /// The lock was taken off as void.
    AbortedByRecovery,
    /// The transaction was applied.
    Applied,
}

/// How far a process is with making the partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Making {
    /// It does not.
    #[default]
    No,
    /// It asks the domain document.
    Ask,
    /// It creates a partition of its own.
    Create,
    /// It names that in the domain document.
    Name,
    /// It adds the alias to the official one.
    Alias(u8),
    /// It was told that the day is gone.
    Gone,
}

/// How far the owner, or who met its lock, is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Doing {
    /// It writes the record, or reads it.
    #[default]
    Record,
    /// It applies.
    Apply,
    /// It marks the record as finished.
    Finish,
    /// It takes the lock off.
    Void,
    /// It is over.
    Over,
}

/// How far a janitor is with dropping the day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Dropping {
    /// It has not begun.
    #[default]
    Idle,
    /// It read the domain document, at that version.
    Read(u8, u8),
    /// The partition is blocked.
    Blocked(u8, u8),
    /// It was scanned, and nothing is open.
    Scanned(u8, u8),
    /// Something is in the way: the block has to be lifted, and that is noted first.
    Undo(u8),
    /// It is noted; the lift is under way.
    Lift(u8),
    /// The watermark is moved: the partition is to be deleted.
    Delete(u8),
}

/// A state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Day {
    pub(super) domain: Domain,
    /// What is left of the domain document when their primary crashes.
    pub(super) durable: Option<Domain>,
    pub(super) partitions: [Partition; 4],
    pub(super) alias: u8,
    pub(super) document: Held,
    pub(super) told: Told,
    /// Whether a `committed` record was ever written.
    pub(super) committed: bool,
    pub(super) making: [Making; PROCESSES],
    pub(super) owner: Doing,
    pub(super) finder: Doing,
    pub(super) dropping: [Dropping; 2],
    /// A `create` of the committed record that is under way.
    pub(super) late: bool,
    /// Whether a commit was sent and not acknowledged.
    pub(super) sent: bool,
    pub(super) lates: u8,
    pub(super) lags: u8,
    pub(super) vanishing: u8,
    pub(super) deaths: u8,
}

/// What became of a write to the record.
pub(super) enum Wrote {
    Yes,
    Conflict,
    Blocked,
    Missing,
}

impl Day {
    pub(super) fn partition(&mut self, name: u8) -> Option<&mut Partition> {
        let found = &mut self.partitions[usize::from(name.checked_sub(1)?)];
        found.exists.then_some(found)
    }

    /// Writes the record through the alias, if it is in one of these states.
    pub(super) fn write(&mut self, from: &[Mark], to: Mark, requires_alias: bool) -> Wrote {
        if !requires_alias && self.alias == 0 {
            self.alias = UNASKED;
            self.partitions[usize::from(UNASKED) - 1] =
                Partition { exists: true, ..Partition::default() };
        }
        let alias = self.alias;
        let Some(partition) = self.partition(alias) else { return Wrote::Missing };
        if partition.blocked {
            return Wrote::Blocked;
        }
        if !from.contains(&partition.record) {
            return Wrote::Conflict;
        }
        partition.record = to;
        self.committed |= to == Mark::Committed;
        Wrote::Yes
    }

    /// An acknowledged write of the domain document.
    pub(super) fn rule(&mut self, change: impl FnOnce(&mut Domain)) {
        change(&mut self.domain);
        self.domain.version += 1;
        self.durable = None;
    }

    /// Versions in order without gaps.
    pub(super) fn canonical(mut self) -> Self {
        let mut versions = vec![self.domain.version];
        versions.extend(self.durable.map(|rules| rules.version));
        for dropping in &self.dropping {
            if let Dropping::Read(v, _) | Dropping::Blocked(v, _) | Dropping::Scanned(v, _) =
                dropping
            {
                versions.push(*v);
            }
        }
        versions.sort_unstable();
        versions.dedup();
        let rank = |v: u8| {
            versions
                .iter()
                .position(|known| *known == v)
                .and_then(|at| u8::try_from(at).ok())
                .unwrap_or(v)
        };
        self.domain.version = rank(self.domain.version);
        if let Some(rules) = &mut self.durable {
            rules.version = rank(rules.version);
        }
        for dropping in &mut self.dropping {
            if let Dropping::Read(v, _) | Dropping::Blocked(v, _) | Dropping::Scanned(v, _) =
                dropping
            {
                *v = rank(*v);
            }
        }
        self
    }
}
