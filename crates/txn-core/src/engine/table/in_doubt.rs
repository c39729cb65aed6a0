//! Commits in doubt, which stay in the lists of recent commits.
//!
//! This process may still search the list of a document for such a commit
//! ([`txn_protocol::rules::recent`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use txn_protocol::ids::CommitVersion;

/// Commits with an unknown outcome, and commits whose apply is not acknowledged.
#[derive(Debug, Default)]
pub(crate) struct InDoubt(Arc<Mutex<BTreeSet<CommitVersion>>>);

impl InDoubt {
    /// Marks a commit as in doubt until the result is dropped.
    ///
    /// The mark begins before the write is sent.
    pub(crate) fn begin(&self, commit: CommitVersion) -> Doubt {
        self.0.lock().insert(commit);
        Doubt { all: self.0.clone(), commit }
    }

    pub(in crate::engine) fn contains(&self, commit: CommitVersion) -> bool {
        self.0.lock().contains(&commit)
    }
}

/// See [`InDoubt::begin`].
#[must_use]
#[derive(Debug)]
pub(crate) struct Doubt {
    all: Arc<Mutex<BTreeSet<CommitVersion>>>,
    commit: CommitVersion,
}

impl Drop for Doubt {
    fn drop(&mut self) {
        self.all.lock().remove(&self.commit);
    }
}
