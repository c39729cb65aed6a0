//! The sequential reference: what is committed, one transaction after the other.

use std::collections::{BTreeMap, BTreeSet};

/// What a transaction means to do to one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    Put(u64),
    Insert(u64),
    Delete,
    /// Inserted and deleted again: it must not exist, and nothing is written.
    Withdrawn,
}

impl Intent {
    /// What the transaction itself reads from now on.
    pub(crate) fn content(self) -> Option<u64> {
        match self {
            Self::Put(value) | Self::Insert(value) => Some(value),
            Self::Delete | Self::Withdrawn => None,
        }
    }
}

/// What one transaction read and means to write.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work {
    /// What it read first of each document, before it wrote it.
    pub(crate) reads: BTreeMap<u8, Option<u64>>,
    pub(crate) writes: BTreeMap<u8, Intent>,
}

/// All documents, and everything that they ever held.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    now: BTreeMap<u8, u64>,
    ever: BTreeSet<(u8, u64)>,
}

impl Ledger {
    pub(crate) fn get(&self, key: u8) -> Option<u64> {
        self.now.get(&key).copied()
    }

    /// Whether a document ever was that.
    pub(crate) fn was(&self, key: u8, content: Option<u64>) -> bool {
        content.is_none_or(|value| self.ever.contains(&(key, value)))
    }

    /// Whether one of the documents that are to be inserted exists.
    pub(crate) fn has_one_to_insert(&self, work: &Work) -> bool {
        let inserts = |(key, intent): (&u8, &Intent)| {
            matches!(intent, Intent::Insert(_) | Intent::Withdrawn) && self.now.contains_key(key)
        };
        work.writes.iter().any(inserts)
    }

    /// A transaction committed, at this place of the sequence.
    ///
    /// # Panics
    /// If it could not have, here.
    pub(crate) fn commit(&mut self, work: &Work, who: &str) {
        for (key, read) in &work.reads {
            assert_eq!(
                *read,
                self.get(*key),
                "{who} committed what it made of an old read of {key}"
            );
        }
        assert!(!self.has_one_to_insert(work), "{who} inserted what was there: {work:?}");
        for (key, intent) in &work.writes {
            match intent.content() {
                Some(value) => {
                    self.now.insert(*key, value);
                    self.ever.insert((*key, value));
                }
                None => {
                    self.now.remove(key);
                }
            }
        }
    }
}
