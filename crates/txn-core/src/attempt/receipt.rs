//! What a caller is told of its commit.

use txn_protocol::ids::{AttemptId, CommitVersion};

/// How a transaction ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// The attempt that succeeded, to be asked for by [`Domain::outcome`](crate::Domain::outcome). `None` where nobody
    /// can: a transaction that only read, or that wrote one document without a record, leaves none.
    pub tid: Option<AttemptId>,
    /// The version of everything that it wrote; `None` if it wrote nothing, or if another transaction, composed with it into
    /// one commit, wrote one of its documents behind it ([`Options::by_itself`](crate::Options::by_itself)).
    pub commit_version: Option<CommitVersion>,
    /// How many attempts it took, from 1.
    pub attempts: u32,
    /// Whether every document was applied (and refreshed, if that was asked for) when it returned. `false`
    /// where the caller did not ask to wait for it, or where the store did not let it happen in time: it is
    /// committed all the same, and whoever meets its locks finishes it.
    pub applied: bool,
}
