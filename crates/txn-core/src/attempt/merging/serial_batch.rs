//! Merges transactions into one serial order for one attempt. No I/O.
//!
//! A transaction is merged if each of its reads is current at its position in the order.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use txn_protocol::document::{Image, View};
use txn_protocol::ids::AttemptId;
use txn_protocol::rules::validate::Observed;

use crate::attempt::{Mutation, ReadWriteSet};
use crate::engine::read_entry::ReadEntry;
use txn_store::Key;

/// The result of merging a transaction into a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    /// The transaction is merged: its reads are current at its position.
    Merged,
    /// A read is not current.
    ///
    /// The closure has to run again on the batch so far.
    StaleRead,
    /// The transaction inserts an existing document.
    ///
    /// Only a run without a group can report this error.
    Conflict,
}

/// Transactions in a serial order.
#[derive(Debug)]
pub(crate) struct SerialBatch {
    /// The attempt that commits the batch.
    tid: AttemptId,
    /// The documents before the first transaction, as far as known.
    known: BTreeMap<Key, ReadEntry>,
    /// The documents of which a transaction read the state before the batch.
    read: BTreeSet<Key>,
    /// The combined writes of all transactions.
    writes: BTreeMap<Key, Mutation>,
}

impl SerialBatch {
    pub(crate) fn new(tid: AttemptId) -> Self {
        let (known, read, writes) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self { tid, known, read, writes }
    }

    /// Adds a read of any transaction: the latest read counts.
    pub(crate) fn seed_read(&mut self, key: &Key, entry: ReadEntry) {
        match self.known.get(key) {
            Some(known) if !entry.is_later_than(known) => {}
            _ => drop(self.known.insert(key.clone(), entry)),
        }
    }

    /// Returns the entry that the next transaction reads; `None` if unknown.
    pub(crate) fn read(&self, key: &Key) -> Option<ReadEntry> {
        let Some(mutation) = self.writes.get(key) else { return self.known.get(key).cloned() };
        // The attempt of the batch holds this content, and may never commit it. A validation
        // against the store would find the content changed.
        let image = mutation.image().cloned();
        let observed =
            Observed { version: None, commit_version: None, image, holder: Some(self.tid) };
        Some(ReadEntry { observed, view: View::Absent, read_at: Duration::ZERO })
    }

    /// Merges one more transaction, or leaves the batch unchanged.
    pub(in crate::attempt) fn merge(&mut self, working: &ReadWriteSet) -> Merge {
        let image = |key: &Key| self.image(key);
        let is_stale = |(key, read): (&Key, &ReadEntry)| {
            image(key).is_some_and(|image| image != read.observed.image.as_ref())
                || working.known_versions.contains(key) && !self.has_version_of(key, read)
        };
        if working.reads.iter().any(is_stale) {
            return Merge::StaleRead;
        }
        let mut writes = Vec::new();
        for (key, mutation) in &working.writes {
            let exists = matches!(image(key), Some(Some(_)));
            let must_be_new = matches!(mutation, Mutation::Insert(_) | Mutation::Withdrawn);
            let Some(mutation) = Mutation::followed_by(self.writes.get(key), mutation) else {
                return Merge::Conflict;
            };
            if exists && must_be_new {
                return Merge::Conflict;
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
        Merge::Merged
    }

    /// Whether a read of an existing document is still current.
    ///
    /// The read must have seen the commit version at the position of the next transaction, as far
    /// as known.
    ///
    /// An earlier transaction of the batch has no commit version yet.
    fn has_version_of(&self, key: &Key, read: &ReadEntry) -> bool {
        let is_same =
            |known: &ReadEntry| known.observed.commit_version == read.observed.commit_version;
        !self.writes.contains_key(key) && self.known.get(key).is_none_or(is_same)
    }

    /// The content at the position of the next transaction, if known.
    fn image(&self, key: &Key) -> Option<Option<&Image>> {
        match self.writes.get(key) {
            Some(mutation) => Some(mutation.image()),
            None => self.known.get(key).map(|entry| entry.observed.image.as_ref()),
        }
    }

    /// Returns the combined reads and writes, for one attempt.
    pub(in crate::attempt) fn working(&self) -> ReadWriteSet {
        let mut working = ReadWriteSet::default();
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
#[path = "serial_batch_tests.rs"]
mod tests;
