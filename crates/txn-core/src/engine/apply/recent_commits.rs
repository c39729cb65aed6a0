//! Contents after a commit, with the lists of recent commits.
//!
//! A document keeps its recent commits. This process may still search the list of a document for a
//! commit in doubt ([`txn_protocol::rules::recent`]), so such a commit stays in the list.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::engine::base::Base;
use crate::engine::context::Context;
use crate::engine::store::store_access::StoreAccess;
use crate::engine::time::Time;
use txn_protocol::document::{Image, Stored, View};
use txn_protocol::ids::CommitVersion;
use txn_protocol::record::Record;
use txn_protocol::rule::Rule;
use txn_protocol::rules::lock::{HandoffStep, handoff_step};
use txn_protocol::rules::recent::recent_with;

/// Builds the contents of documents after a commit.
pub(crate) struct RecentCommits {
    context: Arc<Context>,
    store: Arc<StoreAccess>,
    time: Arc<Time>,
    /// Commits with an unknown outcome, and commits whose apply is not acknowledged.
    in_doubt: InDoubt,
}

type InDoubt = Arc<Mutex<BTreeSet<CommitVersion>>>;

impl RecentCommits {
    pub(in crate::engine) fn new(base: &Base) -> Self {
        let Base { context, store, time, .. } = base.clone();
        Self { context, store, time, in_doubt: InDoubt::default() }
    }

    /// Marks a commit as in doubt until the result is dropped.
    ///
    /// The mark begins before the write is sent.
    pub(crate) fn begin(&self, commit: CommitVersion) -> Doubt {
        self.in_doubt.lock().insert(commit);
        Doubt { all: self.in_doubt.clone(), commit }
    }

    /// The list of recent commits with one more commit.
    fn recent_with(&self, recent: &[CommitVersion], commit: CommitVersion) -> Vec<CommitVersion> {
        let Context { config, rules, ids, .. } = &*self.context;
        // A process in doubt searches the list until its deadline, and its write lands before the
        // store gives up on the request.
        let request = self.store.documents().request_timeout();
        let longest = request.saturating_mul(2).max(config.timeout);
        let horizon = self.time.utc().saturating_sub(longest);
        let keeps =
            |version| rules.decides(Rule::KeepInDoubt) && self.in_doubt.lock().contains(&version);
        let is_known = |version| ids.has_issued(version) && !keeps(version);
        recent_with(recent, commit, is_known, horizon)
    }

    /// The document after the commit, in place of `before`.
    pub(in crate::engine) fn committed(
        &self,
        before: &Stored,
        commit: CommitVersion,
        image: &Image,
    ) -> Stored {
        let recent = self.recent_with(&before.recent, commit).into();
        Stored {
            lock: None,
            commit_version: Some(commit),
            recent,
            absent: false,
            image: image.clone(),
        }
    }

    /// The document as the next lock overwrites it.
    ///
    /// `None` if the lock of this participant cannot be overwritten. The record must be
    /// acknowledged as committed. `now`: the participant as its owner locked it.
    pub(crate) fn under_next_lock(
        &self,
        record: &Record,
        index: usize,
        now: &View,
    ) -> Option<View> {
        let View::Present { source, stored, .. } = now else { return None };
        let participant = record.participants.get(index)?;
        let (version, stored) =
            match handoff_step(&self.context.rules, record.tid, true, participant, now)? {
                HandoffStep::Content(version) => {
                    let image = record.images.get(index)?.as_ref()?;
                    (version, self.committed(stored, record.commit_version?, image))
                }
                HandoffStep::Placeholder(version) => {
                    (version, Stored { absent: true, ..Stored::default() })
                }
                HandoffStep::Keep(version) => (version, stored.locked_by(None)),
            };
        Some(View::Present { version, source: source.clone(), stored })
    }
}

/// See [`RecentCommits::begin`].
#[must_use]
#[derive(Debug)]
pub(crate) struct Doubt {
    all: InDoubt,
    commit: CommitVersion,
}

impl Drop for Doubt {
    fn drop(&mut self) {
        self.all.lock().remove(&self.commit);
    }
}
