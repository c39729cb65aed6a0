//! What several transactions come to that one attempt commits: one after the other, each on what those before it left behind.
//! No I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use txn_protocol::document::{Image, View};
use txn_protocol::ids::AttemptId;
use txn_protocol::rules::validate::Observed;

use super::{Mutation, Working};
use crate::engine::observe::ReadEntry;
use crate::store::Key;

/// Whether a transaction may follow those that are composed already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// Everything that it read is, at its place, what it read: it is composed.
    Joined,
    /// Something that it read is not: its closure has to run again, on what is composed so far.
    Stale,
    /// It inserts what certainly exists: only a run by itself can say so.
    Refused,
}

/// Transactions in a serial order.
#[derive(Debug)]
pub(crate) struct Composition {
    /// The attempt that is to commit them.
    tid: AttemptId,
    /// What is known of their documents before the first of them, as far as they read them.
    known: BTreeMap<Key, ReadEntry>,
    /// Those of which one of them read what stood there before the first.
    read: BTreeSet<Key>,
    /// What they write together.
    writes: BTreeMap<Key, Mutation>,
}

impl Composition {
    pub(crate) fn new(tid: AttemptId) -> Self {
        let (known, read, writes) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self { tid, known, read, writes }
    }

    /// What was read of a document, by whomever: the latest counts.
    pub(crate) fn learn(&mut self, key: &Key, entry: ReadEntry) {
        match self.known.get(key) {
            Some(known) if !entry.is_later_than(known) => {}
            _ => drop(self.known.insert(key.clone(), entry)),
        }
    }

    /// What the next transaction reads of a document; none if nobody knows it.
    pub(crate) fn look(&self, key: &Key) -> Option<ReadEntry> {
        let Some(mutation) = self.writes.get(key) else { return self.known.get(key).cloned() };
        // Held by an attempt that commits it, or never: taken for a read of the store it would be found changed.
        let image = mutation.image().cloned();
        let observed = Observed { version: None, tid: None, image, holder: Some(self.tid) };
        Some(ReadEntry { observed, view: View::Absent, read_at: Duration::ZERO })
    }

    /// Composes one more transaction, if it fits; otherwise nothing is changed.
    pub(super) fn admit(&mut self, working: &Working) -> Fit {
        let image = |key: &Key| self.image(key);
        if working.reads.iter().any(|(key, read)| {
            image(key).is_some_and(|image| image != read.observed.image.as_ref())
        }) {
            return Fit::Stale;
        }
        let mut writes = Vec::new();
        for (key, mutation) in &working.writes {
            let exists = matches!(image(key), Some(Some(_)));
            let must_be_new = matches!(mutation, Mutation::Insert(_) | Mutation::Withdrawn);
            let Some(mutation) = Mutation::followed_by(self.writes.get(key), mutation) else {
                return Fit::Refused;
            };
            if exists && must_be_new {
                return Fit::Refused;
            }
            writes.push((key.clone(), mutation));
        }
        for (key, read) in &working.reads {
            if !self.writes.contains_key(key) {
                self.known.entry(key.clone()).or_insert_with(|| read.clone());
                self.read.insert(key.clone());
            }
        }
        self.writes.extend(writes);
        Fit::Joined
    }

    /// The content at the place of the next transaction, as far as it is known.
    fn image(&self, key: &Key) -> Option<Option<&Image>> {
        match self.writes.get(key) {
            Some(mutation) => Some(mutation.image()),
            None => self.known.get(key).map(|entry| entry.observed.image.as_ref()),
        }
    }

    /// What one attempt has to read and write in the place of all of them.
    pub(super) fn working(&self) -> Working {
        let mut working = Working::default();
        for key in &self.read {
            if let Some(entry) = self.known.get(key) {
                working.note_read(key.clone(), entry.clone());
            }
        }
        for (key, mutation) in &self.writes {
            working.note_write(key.clone(), mutation.clone());
        }
        working
    }
}

#[cfg(test)]
#[path = "composition_tests.rs"]
mod tests;
