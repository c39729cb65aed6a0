//! The sequential reference: all commits, one after the other.

use std::collections::{BTreeMap, BTreeSet};

/// The intended change of one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    Put(u64),
    Insert(u64),
    Delete,
    /// Inserted and deleted again. The document must not exist, and nothing is written.
    Withdrawn,
}

impl Intent {
    /// The content that the transaction itself reads from now on.
    pub(crate) fn content(self) -> Option<u64> {
        match self {
            Self::Put(value) | Self::Insert(value) => Some(value),
            Self::Delete | Self::Withdrawn => None,
        }
    }
}

/// The reads and the intended writes of one transaction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work {
    /// The first read of each document, before the transaction wrote it.
    pub(crate) reads: BTreeMap<u8, Option<u64>>,
    pub(crate) writes: BTreeMap<u8, Intent>,
}

/// All documents, and every value that they ever had.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    now: BTreeMap<u8, u64>,
    ever: BTreeSet<(u8, u64)>,
}

impl Ledger {
    pub(crate) fn get(&self, key: u8) -> Option<u64> {
        self.now.get(&key).copied()
    }

    /// Whether a document ever had that content.
    pub(crate) fn was(&self, key: u8, content: Option<u64>) -> bool {
        content.is_none_or(|value| self.ever.contains(&(key, value)))
    }

    /// Whether one of the documents to be inserted exists.
    pub(crate) fn has_one_to_insert(&self, work: &Work) -> bool {
        let inserts = |(key, intent): (&u8, &Intent)| {
            matches!(intent, Intent::Insert(_) | Intent::Withdrawn) && self.now.contains_key(key)
        };
        work.writes.iter().any(inserts)
    }

    /// Adds the commit of a transaction at this position of the sequence.
    ///
    /// # Panics
    /// If the transaction cannot commit at this position.
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
