//! Locks on hot documents: hand-offs, evicted members, and board turns.

use crate::attempt::Attempt;
use crate::attempt::locking::lock_request::{LockRequest, LockStep};
use crate::attempt::locking::phase::LockPhase;
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::event::Event;
use txn_protocol::document::View;
use txn_protocol::ids::AttemptId;
use txn_protocol::rules::lock::read_of_commit;

impl LockPhase<'_> {
    /// Prolongs the turn of the process until apply or release.
    pub(super) fn prolong_turn(&self) {
        if !self.requests.is_empty() {
            let mut under_way = self.attempt.hot.under_way.lock();
            under_way
                .get_or_insert_with(|| self.attempt.engine.hot.board.begin())
                .add(self.requests.keys());
        }
    }

    /// Takes hand-offs: documents with an unapplied commit of this process.
    pub(super) fn take_handoffs(&mut self) {
        let uncertain = self.attempt.locks.lock().uncertain.clone();
        for (key, request) in &mut self.requests {
            if request.handed_off || uncertain.contains(key) {
                continue;
            }
            let Some(handoff) = self.attempt.engine.hot.handoffs.take(key) else { continue };
            request.see(handoff.view.clone());
            let of_commit = |read| read_of_commit(&self.attempt.engine.context.rules, read);
            request.read = request.read.take().map(of_commit);
            (request.depth, request.handed_off) = (handoff.depth, true);
            self.handoffs.insert(key.clone(), handoff);
        }
    }

    /// Confirms the hand-offs whose locks are acknowledged.
    ///
    /// The earlier commits apply the other documents.
    pub(super) fn confirm_handoffs(&mut self) {
        let mut documents = Vec::new();
        for (key, handoff) in std::mem::take(&mut self.handoffs) {
            if self.attempt.locks.lock().held.contains_key(&key) {
                handoff.locked();
                documents.push(key);
            }
        }
        if !documents.is_empty() {
            self.attempt.engine.hot.board.handed_off(self.attempt.engine.context.now());
            self.attempt.engine.turns.follow_board();
            self.attempt
                .engine
                .context
                .emit(&Event::HandedOff { tid: self.attempt.tid, documents });
        }
    }

    /// Drops the requests of evicted members, except for uncertain locks.
    pub(super) fn drop_unsent_evicted(&mut self) {
        let members = &self.attempt.hot.members;
        if members.has_evicted() {
            let uncertain = self.attempt.locks.lock().uncertain.clone();
            self.checks.retain(|check| !members.is_evicted(&check.key));
            self.requests.retain(|key, _| uncertain.contains(key) || !members.is_evicted(key));
        }
    }

    /// Drops the requests of evicted members, and settles their uncertain locks.
    pub(super) fn drop_evicted_requests(&mut self) {
        self.drop_unsent_evicted();
        let members = &self.attempt.hot.members;
        for (_, request) in self.requests.iter_mut().filter(|(key, _)| members.is_evicted(key)) {
            // The lock counts, whether or not the content under it changed.
            *request = LockRequest::default();
        }
    }
}

/// Whether an earlier commit is about to apply the document.
///
/// The lock of this attempt could not overwrite that commit.
pub(super) fn is_applied_soon(attempt: &Attempt, request: &LockRequest, holder: AttemptId) -> bool {
    request.handed_off && attempt.engine.live_attempts.is_live(holder)
}

/// Whether another process holds the document, or changed it after the read.
pub(super) fn shows_another(
    attempt: &Attempt,
    request: &LockRequest,
    step: &Result<LockStep, AttemptError>,
) -> bool {
    match (step, &request.view) {
        (Ok(LockStep::Blocked(holder)), _) => !attempt.engine.live_attempts.is_live(*holder),
        (Err(AttemptError::Retry(RetryReason::Changed(_))), Some(View::Present { stored, .. })) => {
            stored
                .commit_version
                .is_some_and(|version| !attempt.engine.context.ids.shares_node(version))
        }
        _ => false,
    }
}
