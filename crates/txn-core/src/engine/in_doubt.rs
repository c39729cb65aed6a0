//! The commits of this process that it still looks for in the lists of recent commits: there they stay until then
//! ([`txn_protocol::rules::recent`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use txn_protocol::ids::CommitVersion;

/// Commits of which it is not known what became of them, and those whose apply is not acknowledged.
#[derive(Debug, Default)]
pub(crate) struct InDoubt(Arc<Mutex<BTreeSet<CommitVersion>>>);

impl InDoubt {
    /// This one is, until what is returned is dropped. It begins before it is sent.
    pub(crate) fn begin(&self, commit: CommitVersion) -> Doubt {
        self.0.lock().insert(commit);
        Doubt { all: self.0.clone(), commit }
    }

    pub(super) fn contains(&self, commit: CommitVersion) -> bool {
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
