//! What happens inside the engine, told to an observer as it happens.

use std::fmt;

use crate::store::Key;
use txn_protocol::ids::{AttemptId, CommitVersion, Day};

/// Is told of events. Called on the engine's own tasks: it must return at once. A panic in it is logged and
/// changes nothing.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// Something happened.
    fn on_event(&self, event: &Event);
}

/// Something that happened, from this process's point of view. Holds no document bodies.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// An attempt began.
    Started {
        /// The attempt.
        tid: AttemptId,
    },
    /// Transactions of this process were composed into one, which is about to be committed by this attempt.
    Composed {
        /// The attempt.
        tid: AttemptId,
        /// How many they are: two or more.
        transactions: usize,
    },
    /// Locks were acknowledged.
    Locked {
        /// The attempt.
        tid: AttemptId,
        /// The documents.
        documents: Vec<Key>,
    },
    /// Some locks overwrote a commit of this process that was not applied, and carry its content.
    HandedOff {
        /// The attempt.
        tid: AttemptId,
        /// The documents.
        documents: Vec<Key>,
    },
    /// An attempt waits for an older holder.
    Waiting {
        /// The attempt.
        tid: AttemptId,
        /// Who holds the document.
        holder: AttemptId,
        /// The document.
        document: Key,
    },
    /// An older transaction aborted a younger one that was in its way, and takes its lock.
    Wounded {
        /// The older one.
        by: AttemptId,
        /// The younger one.
        victim: AttemptId,
        /// The document both want.
        document: Key,
    },
    /// The commit was acknowledged.
    Committed {
        /// The attempt.
        tid: AttemptId,
        /// The version of what it wrote.
        commit_version: CommitVersion,
        /// How many documents it wrote.
        written: usize,
    },
    /// An attempt ended without a commit.
    Aborted {
        /// The attempt.
        tid: AttemptId,
        /// Why, in words.
        why: String,
        /// Whether another attempt follows.
        retried: bool,
    },
    /// Every participant of a committed transaction of this process is applied.
    Finished {
        /// The attempt.
        tid: AttemptId,
    },
    /// A transaction of somebody else that was committed, and not applied, was replayed.
    Replayed {
        /// The transaction.
        tid: AttemptId,
        /// Its participants.
        documents: Vec<Key>,
    },
    /// A transaction of somebody else that was taken for dead was aborted: its locks are void.
    AbortedByRecovery {
        /// The transaction.
        tid: AttemptId,
        /// The document at which it was met.
        document: Key,
        /// Whether it had a record, which was `pending`. Without one it died before its commit, or its record was
        /// deleted by somebody, and then it may have been committed: nobody can tell the two apart any more.
        recorded: bool,
    },
    /// A void lock was taken off: of an aborted transaction, or one that the record of a committed one does not name.
    Unlocked {
        /// The transaction.
        tid: AttemptId,
        /// The document.
        document: Key,
    },
    /// A document or a record is not what the protocol allows, or a committed write is refused for
    /// good. A person must look.
    Damaged {
        /// The transaction.
        tid: AttemptId,
        /// The document.
        document: Key,
        /// What is wrong.
        what: String,
    },
    /// A partition of the transaction table was dropped.
    PartitionDropped {
        /// Its day.
        day: Day,
    },
}
