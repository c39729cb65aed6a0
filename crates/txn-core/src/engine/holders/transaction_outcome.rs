//! The type of the final outcome of a transaction.

use txn_protocol::ids::CommitVersion;

/// The final outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransactionOutcome {
    /// The transaction is committed, as this version.
    Committed {
        /// The version of everything that the transaction wrote.
        commit_version: CommitVersion,
    },
    /// The transaction never commits.
    Aborted,
    /// The transaction table no longer has the day of the transaction.
    Forgotten,
}
