//! The commits of this process that it still looks for in the lists of recent commits: there they stay until then
//! ([`txn_protocol::rules::recent`]).

use std::collections::BTreeSet;

use parking_lot::Mutex;
use txn_protocol::tid::Tid;

/// Commits without a record of which it is not known what became of them, and those whose apply is not acknowledged.
#[derive(Debug, Default)]
pub(crate) struct InDoubt(Mutex<BTreeSet<Tid>>);

impl InDoubt {
    /// This one is, until what is returned is dropped.
    pub(crate) fn begin(&self, commit: Tid) -> Doubt<'_> {
        self.0.lock().insert(commit);
        Doubt { in_doubt: self, commit }
    }

    pub(super) fn contains(&self, commit: Tid) -> bool {
        self.0.lock().contains(&commit)
    }
}

/// See [`InDoubt::begin`].
#[must_use]
#[derive(Debug)]
pub(crate) struct Doubt<'d> {
    in_doubt: &'d InDoubt,
    commit: Tid,
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        self.in_doubt.0.lock().remove(&self.commit);
    }
}
