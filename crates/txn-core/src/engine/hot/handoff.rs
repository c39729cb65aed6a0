//! The hand-off table: documents that this process has committed and not applied.
//!
//! The next transaction of this process that locks such a document takes its entry. A single
//! conditional write then carries the content of the commit and the next lock. Other processes see
//! a document that was applied and locked again.
//!
//! The commit that published an entry applies what no transaction takes. An entry has one owner at
//! a time: the table, the attempt that took it, or its commit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::engine::hot::Hot;
use crate::sync::Mutex;
use txn_protocol::document::View;
use txn_store::Key;

/// How long an entry waits before its commit applies the document.
///
/// The clock of the runtime ticks once a millisecond, so that a shorter time would be the same.
pub(crate) const LINGER: Duration = Duration::from_millis(1);

/// The maximum number of hand-offs before a commit applies the document.
///
/// Another process can lock the document only after it was applied.
pub(crate) const MAX_DEPTH: u8 = 16;

/// The documents that this process has committed and not applied.
#[derive(Debug, Default)]
pub(crate) struct HandoffTable {
    entries: Mutex<BTreeMap<Key, HandoffEntry>>,
}

#[derive(Debug)]
struct HandoffEntry {
    view: View,
    depth: u8,
    commit: Arc<PublishedDocuments>,
}

/// The unsettled published documents of one commit.
#[derive(Debug, Default)]
pub(crate) struct PublishedDocuments {
    documents: Mutex<BTreeMap<Key, Owner>>,
    /// The owner of a document has changed, or may change.
    changed: Notify,
}

/// The owner of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The table: any transaction may take it.
    Table,
    /// An attempt, whose lock was sent.
    Taker,
    /// The commit, which applies the document.
    Commit,
}

impl PublishedDocuments {
    /// Waits until the owner of a document may have changed. Cancel safe.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits until the commit has a document to apply. Cancel safe.
    pub(crate) async fn returned(&self) {
        while !self.documents.lock().values().any(|owner| *owner == Owner::Commit) {
            self.changed().await;
        }
    }

    /// Whether each document is locked by its taker, or applied.
    pub(crate) fn is_settled(&self) -> bool {
        self.documents.lock().is_empty()
    }

    /// Whether the document is neither locked by a taker nor applied.
    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.documents.lock().contains_key(key)
    }

    /// The documents that no transaction has taken.
    pub(crate) fn untaken(&self) -> BTreeSet<Key> {
        let documents = self.documents.lock();
        let untaken = documents.iter().filter(|(_, owner)| **owner == Owner::Table);
        untaken.map(|(key, _)| key.clone()).collect()
    }

    /// Takes the documents that the commit has to apply itself.
    pub(crate) fn take_returned(&self) -> BTreeSet<Key> {
        let mut documents = self.documents.lock();
        documents.extract_if(.., |_, owner| *owner == Owner::Commit).map(|(key, _)| key).collect()
    }

    fn give_to(&self, key: &Key, owner: Owner) {
        if let Some(current) = self.documents.lock().get_mut(key) {
            *current = owner;
        }
    }
}

/// An entry that an attempt took.
///
/// If the value is dropped, the document returns to its commit.
#[derive(Debug)]
pub(crate) struct Handoff {
    key: Key,
    /// The document as the next lock overwrites it.
    ///
    /// The version is that of the current lock, and the content is that of the commit.
    pub(crate) view: View,
    /// The number of commits that have handed the document on.
    pub(crate) depth: u8,
    commit: Arc<PublishedDocuments>,
}

impl Handoff {
    /// Settles the entry: the lock and the commit's content are acknowledged.
    pub(crate) fn locked(self) {
        self.commit.documents.lock().remove(&self.key);
    }
}

impl Drop for Handoff {
    fn drop(&mut self) {
        self.commit.give_to(&self.key, Owner::Commit);
        self.commit.changed.notify_one();
    }
}

/// The documents that a commit has published.
///
/// After this value is dropped, no transaction can take the documents.
pub(crate) struct Published {
    hot: Arc<Hot>,
    pub(crate) commit: Arc<PublishedDocuments>,
    pub(crate) keys: BTreeSet<Key>,
}

impl Published {
    /// As [`HandoffTable::publish`].
    pub(crate) fn new(hot: &Arc<Hot>, views: BTreeMap<Key, View>, depth: u8) -> Self {
        let keys = views.keys().cloned().collect();
        let commit = hot.handoffs.publish(views, depth);
        Self { hot: hot.clone(), commit, keys }
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        self.hot.handoffs.withdraw(&self.commit);
    }
}

impl HandoffTable {
    /// Publishes documents of a commit.
    ///
    /// `depth`: how many commits have handed the documents on, including this one.
    pub(crate) fn publish(&self, views: BTreeMap<Key, View>, depth: u8) -> Arc<PublishedDocuments> {
        let commit = Arc::new(PublishedDocuments::default());
        *commit.documents.lock() = views.keys().map(|key| (key.clone(), Owner::Table)).collect();
        let mut entries = self.entries.lock();
        for (key, view) in views {
            let entry = HandoffEntry { view, depth, commit: commit.clone() };
            // Another process rolled the earlier commit forward, so no transaction took its entry.
            if let Some(earlier) = entries.insert(key.clone(), entry) {
                earlier.commit.give_to(&key, Owner::Commit);
                earlier.commit.changed.notify_one();
            }
        }
        commit
    }

    /// Whether a document is committed, not applied, and not taken.
    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.entries.lock().contains_key(key)
    }

    /// Takes an entry, to lock its document over the commit.
    pub(crate) fn take(&self, key: &Key) -> Option<Handoff> {
        let HandoffEntry { view, depth, commit } = self.entries.lock().remove(key)?;
        commit.give_to(key, Owner::Taker);
        Some(Handoff { key: key.clone(), view, depth, commit })
    }

    /// Gives entries back to their commits, which apply the documents at once.
    pub(crate) fn decline<'k>(&self, keys: impl IntoIterator<Item = &'k Key>) {
        keys.into_iter().for_each(|key| drop(self.take(key)));
    }

    /// Wakes the commits of documents that no transaction uses any more.
    pub(crate) fn nudge<'k>(&self, keys: impl IntoIterator<Item = &'k Key>) {
        let entries = self.entries.lock();
        for entry in keys.into_iter().filter_map(|key| entries.get(key)) {
            entry.commit.changed.notify_one();
        }
    }

    /// Removes the entries of a commit that applies nothing any more.
    fn withdraw(&self, commit: &Arc<PublishedDocuments>) {
        let untaken = commit.untaken();
        let is_its = |key: &Key, entry: &mut HandoffEntry| {
            untaken.contains(key) && Arc::ptr_eq(&entry.commit, commit)
        };
        drop(self.entries.lock().extract_if(.., is_its).collect::<Vec<_>>());
    }

    /// Gives back all documents that no transaction locked in time.
    ///
    /// The commit then applies these documents. A late lock of a taker finds an applied document,
    /// and fails on its version.
    pub(crate) fn overdue(&self, commit: &PublishedDocuments) {
        self.decline(&commit.untaken());
        for owner in commit.documents.lock().values_mut() {
            if *owner == Owner::Taker {
                *owner = Owner::Commit;
            }
        }
    }
}

#[cfg(all(test, shuttle))]
#[path = "handoff_schedules.rs"]
mod schedules;
