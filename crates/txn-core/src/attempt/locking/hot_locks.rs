//! Locks on hot documents: hand-offs, evicted members, and board turns.

use std::collections::BTreeMap;

use crate::attempt::Attempt;
use crate::attempt::locking::lock::Step;
use crate::attempt::locking::lock_request::LockRequest;
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::hot::handoff::Handoff;
use crate::event::Event;
use crate::store::{Key, Write};
use txn_protocol::document::View;
use txn_protocol::ids::AttemptId;
use txn_protocol::rules::lock::read_of_commit;

impl Attempt {
    /// Whether an earlier commit is about to apply the document.
    ///
    /// The lock of this attempt could not overwrite that commit.
    pub(in crate::attempt) fn is_applied_soon(
        &self,
        request: &LockRequest,
        holder: AttemptId,
    ) -> bool {
        request.handed_off && self.engine.live_attempts.is_live(holder)
    }

    /// Whether another process holds the document, or changed it after the read.
    pub(in crate::attempt) fn shows_another(
        &self,
        request: &LockRequest,
        step: &Result<Step, AttemptError>,
    ) -> bool {
        match (step, &request.view) {
            (Ok(Step::Blocked(holder)), _) => !self.engine.live_attempts.is_live(*holder),
            (
                Err(AttemptError::Retry(RetryReason::Changed(_))),
                Some(View::Present { stored, .. }),
            ) => stored
                .commit_version
                .is_some_and(|version| !self.engine.context.ids.shares_node(version)),
            _ => false,
        }
    }

    /// Prolongs the turn of the process until apply or release.
    pub(in crate::attempt) fn begin_locking(&self, requests: &BTreeMap<Key, LockRequest>) {
        if !requests.is_empty() {
            let mut under_way = self.hot.under_way.lock();
            under_way.get_or_insert_with(|| self.engine.hot.board.begin()).add(requests.keys());
        }
    }

    /// Takes hand-offs: documents to lock over an unapplied commit of this process.
    pub(in crate::attempt) fn take_handoffs(
        &self,
        requests: &mut BTreeMap<Key, LockRequest>,
        handoffs: &mut BTreeMap<Key, Handoff>,
    ) {
        let uncertain = self.locks.lock().uncertain.clone();
        for (key, request) in requests {
            if request.handed_off || uncertain.contains(key) {
                continue;
            }
            let Some(handoff) = self.engine.hot.handoffs.take(key) else { continue };
            request.see(handoff.view.clone());
            let of_commit = |read| read_of_commit(&self.engine.context.rules, read);
            request.read = request.read.take().map(of_commit);
            (request.depth, request.handed_off) = (handoff.depth, true);
            handoffs.insert(key.clone(), handoff);
        }
    }

    /// Tells the earlier commits which hand-offs are locked.
    ///
    /// The earlier commits apply the other documents.
    pub(in crate::attempt) fn settle_handoffs(&self, handoffs: BTreeMap<Key, Handoff>) {
        let mut documents = Vec::new();
        for (key, handoff) in handoffs {
            if self.locks.lock().held.contains_key(&key) {
                handoff.locked();
                documents.push(key);
            }
        }
        if !documents.is_empty() {
            self.engine.hot.board.handed_off(self.engine.context.now());
            self.engine.turns.follow_board();
            self.engine.context.emit(&Event::HandedOff { tid: self.tid, documents });
        }
    }

    /// Drops the requests of evicted members, except for uncertain locks.
    pub(in crate::attempt) fn drop_unsent_evicted(
        &self,
        requests: &mut BTreeMap<Key, LockRequest>,
        checks: &mut Vec<Write>,
    ) {
        if self.has_evicted() {
            let uncertain = self.locks.lock().uncertain.clone();
            checks.retain(|check| !self.is_evicted(&check.key));
            requests.retain(|key, _| uncertain.contains(key) || !self.is_evicted(key));
        }
    }

    /// Drops the requests of evicted members, and settles their uncertain locks.
    pub(in crate::attempt) fn drop_evicted_requests(
        &self,
        requests: &mut BTreeMap<Key, LockRequest>,
        checks: &mut Vec<Write>,
    ) {
        self.drop_unsent_evicted(requests, checks);
        for (_, request) in requests.iter_mut().filter(|(key, _)| self.is_evicted(key)) {
            // The lock counts, whether or not the content under it changed.
            *request = LockRequest::default();
        }
    }
}
