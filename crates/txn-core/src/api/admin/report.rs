//! The answers of the operator's calls. No answer holds the body of a document.

use serde::Serialize;

use crate::ids::Day;
use crate::record::{Op, State};
use txn_protocol::ids::{AttemptId, CommitVersion};
use txn_protocol::rules::conflict::HolderState;
use txn_store::Key;

/// The name of a document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[non_exhaustive]
pub struct DocumentName {
    /// The physical name of the collection.
    pub collection: String,
    /// The id within the collection.
    pub id: String,
    /// The routing value, if the document has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing: Option<String>,
}

impl From<&Key> for DocumentName {
    fn from(key: &Key) -> Self {
        Self {
            collection: key.collection.to_string(),
            id: key.id.to_string(),
            routing: key.routing.as_deref().map(ToOwned::to_owned),
        }
    }
}

impl std::fmt::Display for DocumentName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.collection, self.id)?;
        match &self.routing {
            Some(routing) => write!(f, " (routing {routing})"),
            None => Ok(()),
        }
    }
}

/// The state of a transaction, by its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TransactionState {
    /// No record exists. The owner runs without a heartbeat yet, or has died before its commit.
    NoRecord,
    /// The owner has written a heartbeat, and has not committed.
    Pending,
    /// Committed, and perhaps not applied to all participants.
    Committed,
    /// Committed and applied.
    Finished,
    /// The attempt never commits.
    Aborted,
    /// The transaction table no longer has the day of the transaction.
    Forgotten,
    /// The record could not be read.
    Unreadable,
}

impl TransactionState {
    /// The name of the state, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoRecord => "no_record",
            Self::Pending => "pending",
            Self::Committed => "committed",
            Self::Finished => "finished",
            Self::Aborted => "aborted",
            Self::Forgotten => "forgotten",
            Self::Unreadable => "unreadable",
        }
    }
}

impl std::fmt::Display for TransactionState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl From<State> for TransactionState {
    fn from(state: State) -> Self {
        match state {
            State::Pending => Self::Pending,
            State::Committed => Self::Committed,
            State::Finished => Self::Finished,
            State::Aborted => Self::Aborted,
        }
    }
}

impl From<HolderState> for TransactionState {
    fn from(state: HolderState) -> Self {
        match state {
            HolderState::Missing => Self::NoRecord,
            HolderState::Gone => Self::Forgotten,
            HolderState::Record(state) => state.into(),
        }
    }
}

/// A part of the domain that an operator's call could not read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub struct Fault {
    /// The document, collection or partition.
    pub subject: String,
    /// The fault, with the remedy if there is one.
    pub message: String,
    /// Whether an operator must repair the subject. Otherwise a later call may succeed.
    pub damaged: bool,
}

/// The parts of a domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Overview {
    /// The name of the domain.
    pub domain: String,
    /// The partitions of the transaction table, one for each day.
    pub partitions: Vec<PartitionName>,
    /// The last day that was dropped from the transaction table.
    pub dropped_through: Option<Day>,
    /// The physical names of the collections.
    pub collections: Vec<String>,
    /// The current time of the domain, in milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// The lead of this machine's clock over the server's clock, in milliseconds.
    ///
    /// `None` if the store does not tell its time.
    pub clock_ahead_ms: Option<i64>,
}

/// A partition of the transaction table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PartitionName {
    /// The UTC day.
    pub day: Day,
    /// The physical name.
    pub name: String,
}

/// The open transactions of a domain, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OpenTransactions {
    /// The transactions whose record is pending or committed.
    pub transactions: Vec<OpenTransaction>,
    /// Whether more transactions are open than the limit allows.
    pub truncated: bool,
    /// The parts that could not be read.
    pub faults: Vec<Fault>,
}

/// An open transaction.
///
/// Ages count from the clock of the domain, and depend on the clock of the owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OpenTransaction {
    /// The attempt.
    pub tid: AttemptId,
    /// The state of its record.
    pub state: TransactionState,
    /// The number of the attempt, counted from zero.
    pub attempt: u16,
    /// The time since the transaction began, in milliseconds.
    pub age_ms: u64,
    /// The time since the last change of the record, in milliseconds.
    pub unchanged_ms: u64,
    /// The time since the last heartbeat of the owner, in milliseconds.
    pub heartbeat_ms: Option<u64>,
    /// Whether the record has been unchanged for longer than its lease.
    pub overdue: bool,
    /// The process that runs the attempt.
    pub process: String,
    /// The application of that process.
    pub application: Option<String>,
    /// The label of the transaction.
    pub label: Option<String>,
    /// The number of participants in the record. A pending record has none.
    pub participants: usize,
}

/// One transaction in full.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TransactionReport {
    /// The attempt.
    pub tid: AttemptId,
    /// The state of its record.
    pub state: TransactionState,
    /// The number of the attempt, counted from zero.
    pub attempt: u16,
    /// The start of the transaction, in milliseconds since the Unix epoch.
    pub started_ms: u64,
    /// The time since the transaction began, in milliseconds.
    pub age_ms: u64,
    /// The label of the transaction, by its record.
    pub label: Option<String>,
    /// The process that runs the attempt. The name comes from the record, or else from the registry
    /// of processes.
    pub process: Option<String>,
    /// The application of that process.
    pub application: Option<String>,
    /// The record, if there is one.
    pub record: Option<RecordReport>,
    /// The participants of the record, and their present state.
    pub participants: Vec<ParticipantReport>,
    /// The number of participants in the record, even if `participants` is shorter.
    pub participants_total: usize,
    /// The documents that hold a lock of this attempt.
    pub locks: Vec<DocumentName>,
    /// Whether a list is shorter than the truth, because of the limit.
    pub truncated: bool,
    /// The state of the transaction, for an operator.
    pub verdict: Verdict,
    /// The reason for the verdict.
    pub why: String,
    /// The parts that could not be read.
    pub faults: Vec<Fault>,
}

/// The record of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RecordReport {
    /// The version of all content that the transaction wrote, if committed.
    pub commit_version: Option<CommitVersion>,
    /// The process that runs the attempt.
    pub process: String,
    /// The application of that process.
    pub application: Option<String>,
    /// The author of the abort.
    pub aborted_by: Option<String>,
    /// The reason for the abort.
    pub aborted_because: Option<String>,
    /// The time of the first write, in milliseconds since the Unix epoch. The time is by the clock
    /// of the writer.
    pub created_ms: u64,
    /// The last heartbeat, in milliseconds since the Unix epoch.
    pub heartbeat_ms: Option<u64>,
    /// The last write, in milliseconds since the Unix epoch.
    pub modified_ms: u64,
    /// The length of the metadata in bytes.
    pub metadata_bytes: usize,
}

/// A participant of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ParticipantReport {
    /// The document that the record names.
    pub document: DocumentName,
    /// The operation of the transaction on the document.
    pub op: Op,
    /// The present state of the document, as seen by the transaction.
    pub state: ParticipantState,
    /// The present holder of the lock.
    pub holder: Option<AttemptId>,
    /// The present commit version of the content.
    pub commit_version: Option<CommitVersion>,
}

/// The present state of a participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ParticipantState {
    /// The document still has the lock of the transaction.
    Locked,
    /// The document has the content of this or a later transaction.
    Applied,
    /// Another transaction holds the document.
    HeldByAnother,
    /// A later transaction wrote other content. A plain client had removed the lock.
    Overtaken,
    /// A later transaction deleted the applied document. The record of the later transaction shows
    /// the delete.
    DeletedSince,
    /// The document is absent, and no record names a later deletion.
    ///
    /// A plain client deleted the document, before the apply or after it.
    Missing,
    /// The state of the write is not known. A plain client moved the lock.
    Unclear,
    /// A plain client wrote the document while it was locked.
    Damaged,
    /// The collection was dropped and made again.
    CollectionMadeAgain,
    /// The document could not be read.
    Unreadable,
    /// The document has no content of the transaction. The record proves no commit.
    Untouched,
}

impl ParticipantState {
    /// The name of the state, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Locked => "locked",
            Self::Applied => "applied",
            Self::HeldByAnother => "held_by_another",
            Self::Overtaken => "overtaken",
            Self::DeletedSince => "deleted_since",
            Self::Missing => "missing",
            Self::Unclear => "unclear",
            Self::Damaged => "damaged",
            Self::CollectionMadeAgain => "collection_made_again",
            Self::Unreadable => "unreadable",
            Self::Untouched => "untouched",
        }
    }

    /// Whether only an operator can settle the participant.
    #[must_use]
    pub fn needs_operator(self) -> bool {
        matches!(
            self,
            Self::Overtaken
                | Self::Missing
                | Self::Unclear
                | Self::Damaged
                | Self::CollectionMadeAgain
        )
    }

    /// Whether the write of the transaction has taken effect.
    #[must_use]
    pub fn is_applied(self) -> bool {
        matches!(self, Self::Applied | Self::DeletedSince)
    }
}

/// The verdict on a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// The owner may still commit.
    Running,
    /// The owner shows no sign of life. Any process may abort the transaction.
    Overdue,
    /// Committed, and not applied to all participants.
    Unapplied,
    /// Committed and applied to all participants. Only the mark of the record is missing.
    Unmarked,
    /// Committed, and an operator must repair a participant.
    Damaged,
    /// Committed and finished.
    Finished,
    /// Aborted for good.
    Aborted,
    /// Too old: the transaction table has dropped its day.
    Forgotten,
    /// No record and no lock exists. The transaction never wrote, or was one document without a
    /// record.
    Unknown,
}

impl Verdict {
    /// The name of the verdict, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Overdue => "overdue",
            Self::Unapplied => "unapplied",
            Self::Unmarked => "unmarked",
            Self::Damaged => "damaged",
            Self::Finished => "finished",
            Self::Aborted => "aborted",
            Self::Forgotten => "forgotten",
            Self::Unknown => "unknown",
        }
    }
}

/// The locked documents of a domain, by the age of their holders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LockedDocuments {
    /// The locks, that of the oldest holder first.
    pub locks: Vec<DocumentLock>,
    /// Whether more documents are locked than the limit allows.
    pub truncated: bool,
    /// The parts that could not be read.
    pub faults: Vec<Fault>,
}

/// The lock of a document, and its holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DocumentLock {
    /// The locked document.
    pub document: DocumentName,
    /// The attempt that holds the lock.
    pub holder: AttemptId,
    /// The state of the holder.
    pub state: TransactionState,
    /// The meaning of the lock.
    pub standing: LockStanding,
    /// The time since the holder began, in milliseconds.
    pub age_ms: u64,
    /// The time since the last change of the holder's record, in milliseconds.
    pub unchanged_ms: Option<u64>,
    /// Whether an undecided holder is silent for longer than its lease.
    ///
    /// Without a record only a first attempt can be overdue. The start of later attempts is not
    /// known.
    pub overdue: bool,
    /// The reason why the record of the holder could not be read.
    pub unreadable: Option<Fault>,
    /// The process of the holder. The name comes from the record, or else from the registry of
    /// processes.
    pub process: Option<String>,
    /// The application of that process.
    pub application: Option<String>,
    /// The label of the holder, by its record.
    pub label: Option<String>,
}

/// The meaning of a lock, by the record of its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LockStanding {
    /// The holder is not decided.
    Undecided,
    /// The holder is committed, but its write is not applied.
    Unapplied,
    /// The lock binds no process. The next transaction overwrites the lock, or the janitor removes
    /// it.
    Void,
    /// The record of the holder could not be read.
    Unknown,
}

impl LockStanding {
    /// The name of the standing, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Undecided => "undecided",
            Self::Unapplied => "unapplied",
            Self::Void => "void",
            Self::Unknown => "unknown",
        }
    }
}

/// The story of one document, without its body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DocumentReport {
    /// The document that was asked for.
    pub document: DocumentName,
    /// Whether readers see the document.
    pub exists: bool,
    /// Whether the document is a placeholder of an insert.
    pub placeholder: bool,
    /// The last commit that is applied.
    ///
    /// `None` if no transaction has written the document.
    pub commit: Option<CommitReport>,
    /// Earlier commits, oldest first. The document keeps one or two for each process.
    pub earlier: Vec<CommitReport>,
    /// The lock, if there is one.
    pub lock: Option<DocumentLock>,
}

/// A commit in the story of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CommitReport {
    /// The commit version.
    pub version: CommitVersion,
    /// The time of the commit, in milliseconds since the Unix epoch.
    pub time_ms: u64,
    /// The number of the process, as in the tids of that process.
    pub process: String,
}

/// The result of [`Admin::check_commits`](crate::Admin::check_commits).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CommitCheck {
    /// The number of finished transactions.
    pub commits: usize,
    /// The number of documents that they wrote.
    pub documents: usize,
    /// The commits that a document has lost.
    pub lost: Vec<LostCommit>,
    /// Whether lost commits were left out of the list.
    pub truncated: bool,
    /// Whether there were more writes than one check compares.
    pub incomplete: bool,
    /// The parts that could not be read.
    pub faults: Vec<Fault>,
}

/// A finished commit whose content is gone, although no later transaction removed it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub struct LostCommit {
    /// The document without the content of the commit.
    pub document: DocumentName,
    /// The transaction.
    pub tid: AttemptId,
    /// The kind of the loss.
    pub kind: LossKind,
}

/// How a document lost a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LossKind {
    /// The document has the content that the transaction replaced.
    ///
    /// Another client or a restored copy put it back.
    PutBack,
    /// Another transaction replaced the same content, so the older content was put back between.
    ReplacedUnseen {
        /// The other transaction.
        by: AttemptId,
    },
    /// Another client replaced the document, without the fields of transactions.
    Overwritten,
    /// The document is absent, and no record names a later deletion.
    Deleted,
}

/// The result of [`Admin::abort`](crate::Admin::abort).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AbortReport {
    /// The attempt.
    pub tid: AttemptId,
    /// The state before the call.
    pub before: TransactionState,
    /// The state after the call.
    pub after: TransactionState,
    /// Whether the call was a dry run.
    pub dry_run: bool,
    /// Whether this call aborted the transaction. In a dry run, this is whether a real call would
    /// abort the transaction.
    pub aborts: bool,
}
