//! Events of the engine, for an observer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::holders::transaction_outcome::TransactionOutcome;
use txn_protocol::ids::{AttemptId, CommitVersion, Day};
use txn_store::Key;

/// Receives the events of a domain.
///
/// The engine calls the observer on its own tasks, so the observer must return at once. The engine
/// logs a panic of the observer, and continues.
///
/// ```
/// use txn_core::event::{Event, Observer};
///
/// /// Prints each conflict.
/// #[derive(Debug)]
/// struct Conflicts;
///
/// impl Observer for Conflicts {
///     fn on_event(&self, event: &Event) {
///         if let Event::Wounded { .. } = event {
///             println!("{event:?}");
///         }
///     }
/// }
///
/// let config = txn_core::Config::default().with_observer(Some(std::sync::Arc::new(Conflicts)));
/// # let _ = config;
/// ```
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// Receives one event.
    fn on_event(&self, event: &Event);
}

/// The reason why an attempt ended without a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum AbortReason {
    /// An older transaction aborted the attempt.
    Wounded,
    /// Another transaction changed a document that the attempt read.
    Changed,
    /// The attempt did not wait for a foreign lock or turn. The lock was that of another
    /// transaction, or the turn that of another process.
    Blocked,
    /// Another write came before a write without a record.
    Overtaken,
    /// The attempt took longer than `attempt_timeout`.
    TimedOut,
    /// The transaction could not be merged into a group.
    LeftGroup,
    /// The application rolled back, or its closure returned an error.
    RolledBack,
    /// The caller dropped the transaction.
    Abandoned,
    /// The store or the engine refused the transaction.
    Failed,
    /// The attempt had locks, and wrote nothing.
    NothingToWrite,
}

impl AbortReason {
    /// All reasons.
    pub const ALL: [Self; 10] = [
        Self::Wounded,
        Self::Changed,
        Self::Blocked,
        Self::Overtaken,
        Self::TimedOut,
        Self::LeftGroup,
        Self::RolledBack,
        Self::Abandoned,
        Self::Failed,
        Self::NothingToWrite,
    ];

    /// The name of the reason, for logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Wounded => "wounded",
            Self::Changed => "changed",
            Self::Blocked => "blocked",
            Self::Overtaken => "overtaken",
            Self::TimedOut => "timed_out",
            Self::LeftGroup => "left_group",
            Self::RolledBack => "rolled_back",
            Self::Abandoned => "abandoned",
            Self::Failed => "failed",
            Self::NothingToWrite => "nothing_to_write",
        }
    }
}

/// The end of a wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WaitEnd {
    /// The holder no longer holds the document.
    Released,
    /// An older transaction aborted the waiting attempt.
    Wounded,
    /// The time of the waiting attempt or transaction ended.
    TimedOut,
    /// The attempt stopped waiting: its caller left, or the attempt starts again.
    GaveUp,
}

impl WaitEnd {
    /// All ends.
    pub const ALL: [Self; 4] = [Self::Released, Self::Wounded, Self::TimedOut, Self::GaveUp];

    /// The name of the end, for logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Wounded => "wounded",
            Self::TimedOut => "timed_out",
            Self::GaveUp => "gave_up",
        }
    }
}

/// The cause of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DamageCause {
    /// A plain client bypassed a lock. The client wrote, deleted or unlocked a locked document.
    LockBypassed,
    /// A plain client removed the record of a committed transaction.
    RecordRemoved,
    /// A collection was deleted, or made again.
    CollectionLost,
    /// A commit cannot be applied for another reason, which the event names.
    NotApplicable,
}

impl DamageCause {
    /// All causes.
    pub const ALL: [Self; 4] =
        [Self::LockBypassed, Self::RecordRemoved, Self::CollectionLost, Self::NotApplicable];

    /// The name of the cause, for logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LockBypassed => "lock_bypassed",
            Self::RecordRemoved => "record_removed",
            Self::CollectionLost => "collection_lost",
            Self::NotApplicable => "not_applicable",
        }
    }
}

/// One step of a transaction, as this process observed it. No event holds a document's body.
///
/// A label is that of [`Options::with_label`](crate::Options::with_label). A group has the labels
/// of its members, joined by `+`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// An attempt began.
    Started {
        /// The attempt.
        tid: AttemptId,
        /// The label of the transaction.
        label: Option<Arc<str>>,
    },
    /// Transactions of this process were merged into a group. An attempt is about to commit the
    /// group.
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
        /// The documents whose locks were acknowledged together.
        documents: Vec<Key>,
    },
    /// Locks were written together with an earlier commit's content. The commit is one of this
    /// process.
    HandedOff {
        /// The attempt that holds the locks.
        tid: AttemptId,
        /// The documents that went from the commit to the attempt.
        documents: Vec<Key>,
    },
    /// An attempt waits for the lock of an older holder, or of a younger one within its grace.
    Waiting {
        /// The attempt that waits.
        tid: AttemptId,
        /// The label of the attempt that waits.
        label: Option<Arc<str>>,
        /// The attempt that holds the lock.
        holder: AttemptId,
        /// The label of the holder, if this process knows it.
        holder_label: Option<Arc<str>>,
        /// The document that the attempt wants.
        document: Key,
    },
    /// A wait for one holder of one document ended.
    WaitEnded {
        /// The attempt that waited.
        tid: AttemptId,
        /// The label of the attempt that waited.
        label: Option<Arc<str>>,
        /// The attempt that held the lock.
        holder: AttemptId,
        /// The label of the holder, if this process knows it.
        holder_label: Option<Arc<str>>,
        /// The document that the attempt wanted.
        document: Key,
        /// How long the attempt waited.
        waited: Duration,
        /// Why the wait ended.
        end: WaitEnd,
    },
    /// An older transaction aborted a younger one and takes its lock.
    Wounded {
        /// The older attempt.
        by: AttemptId,
        /// The label of the older attempt.
        label: Option<Arc<str>>,
        /// The younger attempt.
        victim: AttemptId,
        /// The label of the younger attempt, if this process knows it.
        victim_label: Option<Arc<str>>,
        /// The document that both attempts want.
        document: Key,
    },
    /// The commit was acknowledged.
    Committed {
        /// The attempt.
        tid: AttemptId,
        /// The label of the transaction.
        label: Option<Arc<str>>,
        /// The version of the written documents.
        commit_version: CommitVersion,
        /// The number of written documents.
        written: usize,
    },
    /// An attempt ended without a commit.
    Aborted {
        /// The attempt.
        tid: AttemptId,
        /// The label of the transaction.
        label: Option<Arc<str>>,
        /// The reason, for programs.
        reason: AbortReason,
        /// The reason, for logs.
        why: String,
        /// Whether another attempt follows.
        retried: bool,
    },
    /// A commit was sent, and its caller cannot learn the outcome now.
    ///
    /// [`Domain::outcome`](crate::Domain::outcome) answers later, except for a one-document write.
    Unknown {
        /// The attempt.
        tid: AttemptId,
    },
    /// [`Domain::outcome`](crate::Domain::outcome) answered.
    OutcomeKnown {
        /// The attempt.
        tid: AttemptId,
        /// The final outcome.
        outcome: TransactionOutcome,
    },
    /// All documents of a committed transaction of this process are applied.
    Finished {
        /// The attempt.
        tid: AttemptId,
    },
    /// This process rolled forward a committed transaction of another process.
    RolledForward {
        /// The attempt that committed.
        tid: AttemptId,
        /// The participants, without those that are lost with their collection.
        documents: Vec<Key>,
    },
    /// This process aborted a transaction whose process seems dead. The locks of that transaction
    /// are void.
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
    /// An operator aborted a transaction by this process. The locks of that transaction are void.
    AbortedByOperator {
        /// The aborted attempt.
        tid: AttemptId,
        /// Whether the attempt had a `pending` record.
        recorded: bool,
    },
    /// A void lock was removed. The lock is that of an aborted transaction, or one that the record
    /// of its committed transaction does not name.
    Unlocked {
        /// The attempt that the lock names.
        tid: AttemptId,
        /// The document that had the lock.
        document: Key,
    },
    /// An operator has to repair a document. The document or a record contradicts the protocol, or
    /// the store refuses a committed write for good.
    Damaged {
        /// The attempt.
        tid: AttemptId,
        /// The document or the record.
        document: Key,
        /// The cause, as far as the engine can tell.
        cause: DamageCause,
        /// The damage and its consequence, for logs.
        what: String,
    },
    /// The partition of one day of the transaction table was dropped.
    PartitionDropped {
        /// The day of the partition.
        day: Day,
    },
}
