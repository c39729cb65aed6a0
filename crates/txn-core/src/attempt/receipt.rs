//! The receipt of a commit, for the caller.

use txn_protocol::ids::{AttemptId, CommitVersion};

/// The result of a transaction that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// The attempt that succeeded, for [`Domain::outcome`](crate::Domain::outcome).
    ///
    /// In a group this is the attempt of the group. `None` if the transaction left no record,
    /// because the transaction only read, or wrote one document without a record.
    pub tid: Option<AttemptId>,
    /// The version of all documents that the transaction wrote.
    ///
    /// `None` if the transaction wrote nothing. `None` also if a later member of the same group
    /// overwrote one of its documents, which
    /// [`LockMode::AtCommitUngrouped`](crate::LockMode::AtCommitUngrouped) prevents.
    pub commit_version: Option<CommitVersion>,
    /// The number of attempts, from 1.
    pub attempts: u32,
    /// Whether every document was applied before the transaction returned.
    ///
    /// Includes the refresh, if [`WaitFor::Refresh`](crate::WaitFor::Refresh) asked for one.
    /// `false` if the caller did not wait for the apply, or the store prevented the apply in time.
    /// The transaction is committed even then, and any transaction that finds its locks rolls it
    /// forward.
    pub applied: bool,
}
