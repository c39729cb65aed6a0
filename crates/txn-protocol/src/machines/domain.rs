//! The domain document: official partitions, gone days, and collections.
//!
//! Only conditional writes change the domain document, by the transitions in this module.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use txn_store::{Source, Version};

use super::settle::{Condition, Machine, Settle};
use crate::format::Format;
use crate::ids::Day;
use crate::rule::{Rule, Rules};

/// The document that names the parts of a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainDocument {
    /// The version of its format.
    #[serde(default)]
    pub format: Format,
    /// The last day that is gone. Earlier days are gone, too.
    pub dropped_through: Option<Day>,
    /// The official partition of each day.
    #[serde(default)]
    pub partitions: BTreeMap<Day, String>,
    /// Partitions of days that are gone, while these partitions may still exist.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dropping: BTreeMap<Day, String>,
    /// The noted lifts of write blocks: the days and their last marks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lifted: BTreeMap<Day, String>,
    /// The collections of the domain, by physical name, with their identity.
    #[serde(default)]
    pub collections: BTreeMap<String, String>,
}

/// The state of a day in the domain document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DayStanding<'a> {
    /// The day was dropped.
    Gone,
    /// The day has this official partition.
    Official(&'a str),
    /// The day has no partition yet.
    Unmade,
}

impl DomainDocument {
    /// Reads a stored document.
    ///
    /// # Errors
    /// A message, if the document cannot be read, or if a newer library wrote it.
    pub fn parse(source: &str) -> Result<Self, String> {
        let document: Self = serde_json::from_str(source)
            .map_err(|e| format!("the domain document cannot be read: {e}"))?;
        match document.format.is_known() {
            true => Ok(document),
            false => Err("a newer library wrote it".to_owned()),
        }
    }

    /// The source to store.
    ///
    /// # Errors
    /// A message; no case is known.
    pub fn encode(&self) -> Result<Source, String> {
        let text = serde_json::to_string(self);
        text.map(Into::into).map_err(|e| format!("cannot encode the domain document: {e}"))
    }

    /// Whether a day was dropped.
    #[must_use]
    pub fn is_gone(&self, day: Day) -> bool {
        self.dropped_through.is_some_and(|through| day <= through)
    }

    /// The state of a day.
    #[must_use]
    pub fn day(&self, rules: &Rules, day: Day) -> DayStanding<'_> {
        match self.partitions.get(&day) {
            _ if self.is_gone(day) && rules.decides(Rule::DroppedThrough) => DayStanding::Gone,
            Some(name) => DayStanding::Official(name),
            None => DayStanding::Unmade,
        }
    }

    /// Makes a collection the official partition of a day.
    ///
    /// The day must have no partition, and must not be gone.
    ///
    /// Returns whether the call changed the document.
    pub fn name_partition(&mut self, rules: &Rules, day: Day, name: &str) -> bool {
        let free = self.day(rules, day) == DayStanding::Unmade;
        if free {
            self.partitions.insert(day, name.to_owned());
        }
        free
    }

    /// Declares a day without records gone, unless an older day is kept.
    ///
    /// The day is past its retention. Returns whether that changed the document.
    pub fn give_up(&mut self, day: Day) -> bool {
        let free = self.partitions.keys().all(|kept| *kept > day);
        if free {
            self.dropped_through = self.dropped_through.max(Some(day));
        }
        free
    }

    /// Notes a lift of the write blocks of days.
    ///
    /// Days that are gone are left out.
    ///
    /// Returns whether the call changed the document.
    pub fn note_lift(&mut self, days: &BTreeSet<Day>, mark: &str) -> bool {
        let mut noted = false;
        for day in days {
            if self.partitions.contains_key(day) && !self.is_gone(*day) {
                let before = self.lifted.insert(*day, mark.to_owned());
                noted |= before.as_deref() != Some(mark);
            }
        }
        noted
    }

    /// Moves the watermark to a day that is gone.
    ///
    /// The partition of the day has to be deleted.
    pub fn drop_day(&mut self, day: Day) {
        self.dropped_through = self.dropped_through.max(Some(day));
        if let Some(name) = self.partitions.remove(&day) {
            self.dropping.insert(day, name);
        }
        self.lifted.remove(&day);
    }

    /// Whether a day was dropped by [`drop_day`](Self::drop_day).
    ///
    /// A day before one that is gone is gone, too, although its partition may still be named.
    #[must_use]
    pub fn is_dropped(&self, day: Day) -> bool {
        self.is_gone(day) && !self.partitions.contains_key(&day)
    }
}

/// A domain document before a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changing {
    /// The version of the document.
    pub version: Version,
    /// Whether the change changes anything.
    pub changes: bool,
}

/// Changes the domain document, or touches it.
///
/// A document that was only read may vanish.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChangeDomain;

impl Machine for ChangeDomain {
    type Seen = Changing;
    type Proven = ();

    fn next(&self, seen: &Changing) -> Settle<()> {
        match seen.changes {
            true => Settle::Write(Condition::At(seen.version), ()),
            false => Settle::Touch(seen.version, ()),
        }
    }
}

/// Makes a document of the registry, or touches an existing one.
#[derive(Clone, Copy, Debug, Default)]
pub struct MakeOnce;

impl Machine for MakeOnce {
    type Seen = Option<Version>;
    type Proven = ();

    fn next(&self, seen: &Option<Version>) -> Settle<()> {
        match seen {
            None => Settle::Write(Condition::Absent, ()),
            Some(version) => Settle::Touch(*version, ()),
        }
    }
}

/// Touches a document of the registry, if it exists.
///
/// A document that was only read may vanish.
#[derive(Clone, Copy, Debug, Default)]
pub struct Confirm;

impl Machine for Confirm {
    type Seen = Option<Version>;
    type Proven = ();

    fn next(&self, seen: &Option<Version>) -> Settle<()> {
        seen.map_or(Settle::Known(()), |version| Settle::Touch(version, ()))
    }
}
