//! Events of the engine, for an observer.

use std::fmt;

use crate::store::Key;
use txn_protocol::ids::{AttemptId, CommitVersion, Day};

/// Receives the events of a domain.
///
/// The engine calls the observer on its own tasks, so the observer must return at once. The engine
/// logs a panic of the observer, and continues.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// Receives one event.
    fn on_event(&self, event: &Event);
}

/// One step of a transaction, as this process observed it. No event holds a document's body.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// An attempt began.
    Started {
        /// The attempt.
        tid: AttemptId,
    },
    /// Transactions of this process were merged into a group, and one attempt is about to commit
    /// the group.
    GroupFormed {
        /// The attempt of the group.
        tid: AttemptId,
        /// The number of members, at least two.
        transactions: usize,
    },
    /// Locks were acknowledged.
    Locked {
        /// The attempt.
        tid: AttemptId,
        /// The documents.
        documents: Vec<Key>,
    },
    /// Locks were written together with the content of an earlier commit of this process.
    HandedOff {
        /// The attempt that holds the locks.
        tid: AttemptId,
        /// The documents.
        documents: Vec<Key>,
    },
    /// An attempt waits for a lock of an older transaction.
    Waiting {
        /// The attempt that waits.
        tid: AttemptId,
        /// The attempt that holds the lock.
        holder: AttemptId,
        /// The document.
        document: Key,
    },
    /// An older transaction aborted a younger one and takes its lock.
    Wounded {
        /// The older attempt.
        by: AttemptId,
        /// The younger attempt.
        victim: AttemptId,
        /// The document that both attempts want.
        document: Key,
    },
    /// The commit was acknowledged.
    Committed {
        /// The attempt.
        tid: AttemptId,
        /// The version of the written documents.
        commit_version: CommitVersion,
        /// The number of written documents.
        written: usize,
    },
    /// An attempt ended without a commit.
    Aborted {
        /// The attempt.
        tid: AttemptId,
        /// The reason, for logs.
        why: String,
        /// Whether another attempt follows.
        retried: bool,
    },
    /// All documents of a committed transaction of this process are applied.
    Finished {
        /// The attempt.
        tid: AttemptId,
    },
    /// This process rolled forward a committed transaction of another process.
    Replayed {
        /// The transaction.
        tid: AttemptId,
        /// Its participants.
        documents: Vec<Key>,
    },
    /// This process aborted a transaction whose process seems dead, or that an operator named. The
    /// locks of that transaction are void.
    AbortedByRecovery {
        /// The aborted attempt.
        tid: AttemptId,
        /// The document whose lock led to the attempt.
        document: Key,
        /// Whether the attempt had a `pending` record.
        ///
        /// Without a record the process died before the commit, or another client deleted the
        /// record. The engine cannot tell these two cases apart. In the second case the transaction
        /// may have been committed.
        recorded: bool,
    },
    /// A void lock was removed: the lock of an aborted transaction, or a lock that the record of
    /// its committed transaction does not name.
    Unlocked {
        /// The attempt that the lock names.
        tid: AttemptId,
        /// The document.
        document: Key,
    },
    /// A document or a record contradicts the protocol, or the store refuses a committed write for
    /// good. An operator has to repair the document.
    Damaged {
        /// The attempt.
        tid: AttemptId,
        /// The document or the record.
        document: Key,
        /// The damage and its consequence, for logs.
        what: String,
    },
    /// The partition of one day of the transaction table was dropped.
    PartitionDropped {
        /// The day of the partition.
        day: Day,
    },
}
