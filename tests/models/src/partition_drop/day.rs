//! A state of the model.
//!
//! The state has the partitions of the day, the domain document, and all phases.

use std::collections::BTreeMap;
use std::time::Duration;

use txn_protocol::ids as protocol;
use txn_protocol::machines::domain::DomainDocument;
use txn_protocol::machines::partition::{Dropping, Making};

use super::{PROCESSES, UNASKED};
use crate::state::{Mark, Told};

/// A physical partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Partition {
    pub(super) exists: bool,
    pub(super) blocked: bool,
    pub(super) record: Mark,
}

/// The part of the domain document that concerns this day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Domain {
    pub(super) version: u8,
    pub(super) dropped: bool,
    pub(super) official: u8,
    /// The partition of the day that is gone, which may still exist.
    pub(super) dropping: u8,
}

/// The only document, which the transaction holds at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Held {
    #[default]
    Locked,
    /// The lock was removed as void.
    AbortedByRecovery,
    /// The transaction was applied.
    Applied,
}

/// The phase of a process that makes the partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Maker {
    /// The process makes no partition, or is done.
    #[default]
    No,
    /// The process touches the domain document.
    Ask,
    /// The process creates a partition.
    Create,
    /// The process names its partition in the domain document.
    Name,
    /// The process adds the alias to the official partition.
    AddAlias(u8),
    /// The process knows that the day is gone.
    Gone,
}

impl Maker {
    /// The phase for a step of the machine.
    pub(super) fn of(step: &Making) -> Self {
        match step {
            Making::Ask => Self::Ask,
            Making::Create => Self::Create,
            Making::Name => Self::Name,
            Making::AddAlias(name) => Self::AddAlias(number(name)),
            Making::Ready => Self::No,
            Making::Gone => Self::Gone,
        }
    }
}

/// The phase of the owner, or of the finder of its lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Doing {
    /// The process writes or reads the record.
    #[default]
    Record,
    /// The process applies.
    Apply,
    /// The process marks the record as finished.
    Finish,
    /// The process removes the lock.
    Void,
    /// The process is done.
    Over,
}

/// The phase of a janitor that drops the day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Janitor {
    /// The janitor has not begun.
    #[default]
    Idle,
    /// The next step, about the partition of that name.
    ///
    /// Up to the watermark the janitor knows the version of the domain document that it read.
    At(Dropping, Option<u8>, u8),
}

impl Janitor {
    /// The phase before a step.
    ///
    /// A complete step leaves nothing behind, and only steps before the watermark need a version.
    pub(super) fn at(next: Dropping, version: Option<u8>, name: u8) -> Self {
        match next {
            Dropping::Dropped | Dropping::Left => Self::Idle,
            Dropping::Block | Dropping::Look | Dropping::MoveWatermark => {
                Self::At(next, version, name)
            }
            Dropping::NoteLift | Dropping::Lift | Dropping::Delete => Self::At(next, None, name),
        }
    }

    fn version(&self) -> Option<&u8> {
        match self {
            Self::At(_, version, _) => version.as_ref(),
            Self::Idle => None,
        }
    }
}

/// A state of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Day {
    pub(super) domain: Domain,
    /// The domain document after a crash of its primary.
    pub(super) durable: Option<Domain>,
    pub(super) partitions: [Partition; 4],
    pub(super) alias: u8,
    pub(super) document: Held,
    pub(super) told: Told,
    /// Whether a `committed` record was ever written.
    pub(super) committed: bool,
    pub(super) making: [Maker; PROCESSES],
    pub(super) owner: Doing,
    pub(super) finder: Doing,
    pub(super) dropping: [Janitor; 2],
    /// A `create` of the committed record that is under way.
    pub(super) late: bool,
    /// Whether a commit was sent and not acknowledged.
    pub(super) sent: bool,
    pub(super) late_writes: u8,
    pub(super) lags: u8,
    pub(super) vanishing: u8,
    pub(super) deaths: u8,
}

/// The result of a write to the record.
pub(super) enum Wrote {
    Yes,
    Conflict,
    Blocked,
    Missing,
}

/// The day of the model.
pub(super) fn today() -> protocol::Day {
    protocol::Day::of_unix_time(Duration::from_secs(1_800_000_000))
}

fn number(name: &str) -> u8 {
    name.parse().unwrap_or_default()
}

impl Domain {
    /// The domain document of this state.
    pub(super) fn document(&self) -> DomainDocument {
        let named = |name: u8| (name > 0).then(|| (today(), name.to_string()));
        DomainDocument {
            dropped_through: self.dropped.then(today),
            partitions: named(self.official).into_iter().collect(),
            dropping: named(self.dropping).into_iter().collect(),
            ..DomainDocument::default()
        }
    }

    /// The state of a domain document.
    pub(super) fn of(document: &DomainDocument, version: u8) -> Self {
        let named = |names: &BTreeMap<protocol::Day, String>| {
            names.get(&today()).map_or(0, |name| number(name))
        };
        Self {
            version,
            dropped: document.is_gone(today()),
            official: named(&document.partitions),
            dropping: named(&document.dropping),
        }
    }
}

impl Day {
    pub(super) fn partition(&mut self, name: u8) -> Option<&mut Partition> {
        let found = &mut self.partitions[usize::from(name.checked_sub(1)?)];
        found.exists.then_some(found)
    }

    /// Writes the record through the alias.
    ///
    /// The state of the record must be one of `from`.
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

    /// An acknowledged change, or touch, of the domain document.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut DomainDocument)) -> DomainDocument {
        let mut document = self.domain.document();
        change(&mut document);
        self.domain = Domain::of(&document, self.domain.version + 1);
        self.durable = None;
        document
    }

    /// The same state with versions in order and without gaps.
    pub(super) fn canonical(mut self) -> Self {
        let mut versions = vec![self.domain.version];
        versions.extend(self.durable.map(|rules| rules.version));
        for dropping in &self.dropping {
            versions.extend(dropping.version().copied());
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
            if let Janitor::At(_, Some(version), _) = dropping {
                *version = rank(*version);
            }
        }
        self
    }
}
