//! Locks on hot documents: hand-offs from earlier commits, members that leave the group, and the
//! turn of the process.

use std::collections::BTreeMap;

use super::Attempt;
use super::lock::Step;
use super::want::Want;
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::hot::handoff::Handoff;
use crate::event::Event;
use crate::store::{Key, Write};
use txn_protocol::document::View;
use txn_protocol::ids::AttemptId;
use txn_protocol::rules::lock::read_of_commit;

impl Attempt {
    /// Whether the commit before applies the document at once, because its lock could not overwrite
    /// it.
    pub(super) fn is_applied_soon(&self, want: &Want, holder: AttemptId) -> bool {
        want.handed_off && self.engine.live_attempts.is_live(holder)
    }

    /// Whether another process holds the document, or has changed what was read.
    pub(super) fn shows_another(&self, want: &Want, step: &Result<Step, AttemptError>) -> bool {
        match (step, &want.view) {
            (Ok(Step::Blocked(holder)), _) => !self.engine.live_attempts.is_live(*holder),
            (
                Err(AttemptError::Retry(RetryReason::Changed(_))),
                Some(View::Present { stored, .. }),
            ) => stored.tid.is_some_and(|version| !self.engine.ids.shares_node(version)),
            _ => false,
        }
    }

    /// From here on the turn of the process goes on until this attempt is applied or released.
    pub(super) fn begin_locking(&self, wants: &BTreeMap<Key, Want>) {
        if !wants.is_empty() {
            let mut under_way = self.hot.under_way.lock();
            under_way.get_or_insert_with(|| self.engine.hot.board.begin()).add(wants.keys());
        }
    }

    /// Takes documents that this process has committed and not applied, to lock them over these
    /// commits.
    pub(super) fn take_handoffs(
        &self,
        wants: &mut BTreeMap<Key, Want>,
        handoffs: &mut BTreeMap<Key, Handoff>,
    ) {
        let uncertain = self.locks.lock().uncertain.clone();
        for (key, want) in wants {
            if want.handed_off || uncertain.contains(key) {
                continue;
            }
            let Some(handoff) = self.engine.hot.handoffs.take(key) else { continue };
            want.see(handoff.view.clone());
            let of_commit = |read| read_of_commit(&self.engine.rules, read);
            want.read = want.read.take().map(of_commit);
            (want.depth, want.handed_off) = (handoff.depth, true);
            handoffs.insert(key.clone(), handoff);
        }
    }

    /// Tells the commits which of their documents are locked. They apply the others.
    pub(super) fn settle_handoffs(&self, handoffs: BTreeMap<Key, Handoff>) {
        let mut documents = Vec::new();
        for (key, handoff) in handoffs {
            if self.locks.lock().held.contains_key(&key) {
                handoff.locked();
                documents.push(key);
            }
        }
        if !documents.is_empty() {
            self.engine.hot.board.handed_off(self.engine.now());
            self.engine.follow_board();
            self.engine.emit(&Event::HandedOff { tid: self.tid, documents });
        }
    }

    /// Drops the wants of members that left the group, except locks that may stand.
    pub(super) fn leave_out_who_left(
        &self,
        wants: &mut BTreeMap<Key, Want>,
        checks: &mut Vec<Write>,
    ) {
        if self.has_left() {
            let uncertain = self.locks.lock().uncertain.clone();
            checks.retain(|check| !self.is_set_aside(&check.key));
            wants.retain(|key, _| uncertain.contains(key) || !self.is_set_aside(key));
        }
    }

    /// Sends no more locks for evicted members. A lock without an answer is settled.
    pub(super) fn leave_out_set_aside(
        &self,
        wants: &mut BTreeMap<Key, Want>,
        checks: &mut Vec<Write>,
    ) {
        self.leave_out_who_left(wants, checks);
        for (_, want) in wants.iter_mut().filter(|(key, _)| self.is_set_aside(key)) {
            // The lock counts, with any content under it.
            *want = Want::default();
        }
    }
}
