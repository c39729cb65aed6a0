//! The documents of transactions, and the documents in use. No I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::engine::hot::handoff::HandoffTable;
use txn_store::Key;

/// The documents of one transaction, or of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uses {
    /// The documents that are only read.
    pub(crate) read: BTreeSet<Key>,
    /// The documents that are written.
    pub(crate) written: BTreeSet<Key>,
}

/// The collections of a transaction, in order. Only transactions of the same collections share a
/// group and the bound on groups: a slow or blocked index delays no transaction that does not use
/// it.
pub(super) type CollectionSet = Arc<[Arc<str>]>;

impl Uses {
    pub(super) fn collections(&self) -> CollectionSet {
        let all: BTreeSet<&Arc<str>> = self.keys().map(|key| &key.collection).collect();
        all.into_iter().cloned().collect()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.read.iter().chain(&self.written)
    }

    pub(crate) fn len(&self) -> usize {
        self.read.len() + self.written.len()
    }

    /// Whether nothing is written.
    pub(crate) fn only_reads(&self) -> bool {
        self.written.is_empty()
    }

    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.written.contains(key) || self.read.contains(key)
    }

    /// Splits the documents into the read-only and the written ones.
    pub(crate) fn split(&self) -> (Self, Self) {
        let read = Self { read: self.read.clone(), ..Self::default() };
        (read, Self { written: self.written.clone(), ..Self::default() })
    }

    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self.written.is_subset(&other.written) && self.read.iter().all(|key| other.contains(key))
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.written.extend(other.written.iter().cloned());
        self.read.extend(other.read.iter().cloned());
        self.read.retain(|key| !self.written.contains(key));
    }
}

/// Returns the component of each transaction: the number of its first transaction.
///
/// Two transactions share a component if one writes a document that the other one uses, directly or
/// transitively.
pub(crate) fn components<'u>(all: impl Iterator<Item = &'u Uses> + Clone) -> Vec<usize> {
    let mut first: Vec<usize> = (0..all.clone().count()).collect();
    let written: HashSet<&Key> = all.clone().flat_map(|uses| &uses.written).collect();
    let mut users: HashMap<&Key, usize> = HashMap::new();
    for (number, uses) in all.enumerate() {
        for key in uses.keys().filter(|key| written.contains(key)) {
            let other = *users.entry(key).or_insert(number);
            let (a, b) = (root(&mut first, other), root(&mut first, number));
            first[a.max(b)] = a.min(b);
        }
    }
    (0..first.len()).map(|number| root(&mut first, number)).collect()
}

/// The set of transactions with which a transaction is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CommitSet {
    /// The component of this first number, which uses a single document.
    SingleDocument(usize),
    /// All components that only read.
    ///
    /// Their commit waits for no more than one read of the store.
    OnlyReads,
    /// All other components.
    Others,
}

/// Returns the commit set of each transaction. One attempt commits all transactions of a set.
///
/// All transactions of several documents share an attempt, because they need a record anyway. A
/// single document needs no record, and commits alone.
pub(super) fn commit_sets<'u>(all: impl Iterator<Item = &'u Uses> + Clone) -> Vec<CommitSet> {
    let first = components(all.clone());
    let set = |number: usize| {
        let linked = all.clone().zip(&first).filter(|(_, first)| **first == number);
        let (mut keys, mut only_reads) = (BTreeSet::new(), true);
        for (uses, _) in linked {
            keys.extend(uses.keys());
            only_reads &= uses.only_reads();
        }
        match keys.len() {
            _ if only_reads => CommitSet::OnlyReads,
            1 => CommitSet::SingleDocument(number),
            _ => CommitSet::Others,
        }
    };
    let mut known: BTreeMap<usize, CommitSet> = BTreeMap::new();
    first.iter().map(|number| *known.entry(*number).or_insert_with(|| set(*number))).collect()
}

/// Returns the root in the union-find forest, and shortens the path.
fn root(first: &mut [usize], mut number: usize) -> usize {
    while first[number] != number {
        first[number] = first[first[number]];
        number = first[number];
    }
    number
}

/// The documents in use: by several readers, or by one writer.
#[derive(Debug, Default)]
pub(super) struct InUse {
    read: BTreeMap<Key, usize>,
    written: BTreeMap<Key, usize>,
}

impl InUse {
    /// Whether a transaction may use its documents now.
    ///
    /// A committed and unapplied document is free only for a transaction that writes the document
    /// and locks it over that commit.
    pub(super) fn allows(
        &self,
        uses: &Uses,
        takes_handoffs: bool,
        handoffs: &HandoffTable,
    ) -> bool {
        let is_unapplied = |key: &Key| handoffs.contains(key);
        !self.conflicts_with(uses)
            && !uses.read.iter().any(is_unapplied)
            && (takes_handoffs || !uses.written.iter().any(is_unapplied))
    }

    /// Whether one side writes a document that the other side uses.
    pub(super) fn conflicts_with(&self, uses: &Uses) -> bool {
        self.blocking(uses).next().is_some()
    }

    /// The documents that one side writes and the other side uses.
    pub(super) fn blocking<'u>(&self, uses: &'u Uses) -> impl Iterator<Item = &'u Key> {
        let read = uses.read.iter().filter(|key| self.is_written(key));
        read.chain(uses.written.iter().filter(|key| !self.is_free(key)))
    }

    /// Whether a transaction writes a document.
    pub(super) fn is_written(&self, key: &Key) -> bool {
        self.written.contains_key(key)
    }

    /// Whether no transaction uses a document.
    pub(super) fn is_free(&self, key: &Key) -> bool {
        !self.written.contains_key(key) && !self.read.contains_key(key)
    }

    pub(super) fn add_use(&mut self, uses: &Uses) {
        for (keys, counts) in [(&uses.read, &mut self.read), (&uses.written, &mut self.written)] {
            for key in keys {
                *counts.entry(key.clone()).or_default() += 1;
            }
        }
    }

    pub(super) fn remove_use(&mut self, uses: &Uses) {
        for (keys, counts) in [(&uses.read, &mut self.read), (&uses.written, &mut self.written)] {
            for key in keys {
                let Some(count) = counts.get_mut(key) else { continue };
                *count -= 1;
                if *count == 0 {
                    counts.remove(key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(read: &[&str], written: &[&str]) -> Uses {
        let keys = |ids: &[&str]| ids.iter().map(|id| Key::new("c", *id)).collect();
        Uses { read: keys(read), written: keys(written) }
    }

    #[test]
    fn readers_share_and_writers_do_not() {
        let (reader, writer) = (uses(&["a"], &["b"]), uses(&[], &["a"]));
        let mut in_use = InUse::default();
        in_use.add_use(&reader);
        assert!(!in_use.conflicts_with(&uses(&["a"], &["c"])) && in_use.conflicts_with(&writer));
        in_use.add_use(&uses(&["a"], &["c"]));
        in_use.remove_use(&reader);
        assert!(in_use.conflicts_with(&writer) && !in_use.conflicts_with(&uses(&[], &["b"])));
        in_use.remove_use(&uses(&["a"], &["c"]));
        assert!(
            !in_use.conflicts_with(&writer) && in_use.read.is_empty() && in_use.written.is_empty()
        );
    }

    #[test]
    fn written_and_used_document_links_transactions() {
        let linked = |all: &[Uses]| components(all.iter());
        let (reader, writer) = (uses(&["a"], &["b"]), uses(&[], &["a"]));
        assert_eq!(linked(&[reader.clone(), writer.clone()]), [0, 0]);
        assert_eq!(linked(&[writer, reader.clone()]), [0, 0]);
        assert_eq!(linked(&[reader.clone(), uses(&["a"], &["c"])]), [0, 1], "both only read it");
        let apart = [uses(&[], &["x"]), uses(&[], &["y"]), uses(&[], &["z"]), reader];
        assert_eq!(linked(&apart), [0, 1, 2, 3]);
        let by_others =
            [uses(&[], &["x"]), uses(&[], &["y"]), uses(&["y"], &["x"]), uses(&[], &["q"])];
        assert_eq!(linked(&by_others), [0, 0, 0, 3]);
    }

    #[test]
    fn single_documents_and_readers_commit_apart() {
        let of = |all: &[&Uses]| commit_sets(all.iter().copied());
        let (ab, bc, de) = (uses(&[], &["a", "b"]), uses(&["b"], &["c"]), uses(&["d"], &["e"]));
        let x = uses(&[], &["x"]);
        assert_eq!(
            of(&[&x, &ab, &de, &bc]),
            [CommitSet::SingleDocument(0), CommitSet::Others, CommitSet::Others, CommitSet::Others]
        );
        let (reads_a, reads_q) = (uses(&["a", "q"], &[]), uses(&["q"], &[]));
        assert_eq!(
            of(&[&reads_q, &ab, &reads_a]),
            [CommitSet::OnlyReads, CommitSet::Others, CommitSet::Others]
        );
    }

    #[test]
    fn written_document_is_not_counted_as_read() {
        let mut both = uses(&["a", "b"], &[]);
        both.add(&uses(&["c"], &["a"]));
        assert_eq!(both, uses(&["b", "c"], &["a"]));
        assert!(uses(&["a"], &[]).is_within(&both) && !uses(&[], &["b"]).is_within(&both));
    }
}
