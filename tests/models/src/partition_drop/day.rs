//! A state: the partitions of the day, the document that rules them, and how far everybody is.

use std::collections::BTreeMap;
use std::time::Duration;

use txn_protocol::ids as protocol;
use txn_protocol::machines::domain::DomainDocument;
use txn_protocol::machines::partition::{Dropping, Making};

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
pub(super) enum Maker {
    /// It does not, or is through.
    #[default]
    No,
    /// It touches the domain document.
    Ask,
    /// It creates a partition of its own.
    Create,
    /// It names that in the domain document.
    Name,
    /// It adds the alias to the official one.
    AddAlias(u8),
    /// It was told that the day is gone.
    Gone,
}

impl Maker {
    /// The step that the machine asks for.
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
pub(super) enum Janitor {
    /// It has not begun.
    #[default]
    Idle,
    /// It is about to take this step, about the partition of that name; up to the watermark it knows at which version it read
    /// the domain document.
    At(Dropping, Option<u8>, u8),
}

impl Janitor {
    /// Before a step. What is over leaves nothing behind, and only what comes before the watermark needs a version.
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
    pub(super) making: [Maker; PROCESSES],
    pub(super) owner: Doing,
    pub(super) finder: Doing,
    pub(super) dropping: [Janitor; 2],
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

/// The day that the model is about.
pub(super) fn today() -> protocol::Day {
    protocol::Day::of_unix_time(Duration::from_secs(1_800_000_000))
}

fn number(name: &str) -> u8 {
    name.parse().unwrap_or_default()
}

impl Domain {
    /// The document that this stands for.
    pub(super) fn document(&self) -> DomainDocument {
        let named = |name: u8| (name > 0).then(|| (today(), name.to_string()));
        DomainDocument {
            dropped_through: self.dropped.then(today),
            partitions: named(self.official).into_iter().collect(),
            dropping: named(self.dropping).into_iter().collect(),
            ..DomainDocument::default()
        }
    }

    /// What is left of a document in the model.
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

    /// An acknowledged change, or touch, of the domain document.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut DomainDocument)) -> DomainDocument {
        let mut document = self.domain.document();
        change(&mut document);
        self.domain = Domain::of(&document, self.domain.version + 1);
        self.durable = None;
        document
    }

    /// Versions in order without gaps.
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
