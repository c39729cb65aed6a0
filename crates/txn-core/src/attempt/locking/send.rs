//! One bulk of locks and dry runs.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;

use crate::attempt::locking::lock_request::LockRequest;
use crate::attempt::locking::phase::LockPhase;
use crate::attempt::{HeldLock, ReadEntry};
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::wait_reason::WaitReason;
use crate::error::Error;
use crate::event::Event;
use txn_protocol::document::{Stored, View};
use txn_protocol::rule::Rule;
use txn_protocol::rules::validate::Observed;
use txn_store::{Key, Outcome, Version, Write, WriteOp};

/// The result of one bulk.
#[derive(Default)]
struct Sent {
    /// Why the store did not complete the bulk.
    reason: Option<WaitReason>,
    fault: Option<Error>,
    /// Whether members were evicted.
    has_evicted: bool,
    locked: Vec<Key>,
}

impl LockPhase<'_> {
    /// Sends a bulk of dry runs and locks.
    ///
    /// Acknowledged locks leave the requests. Dry runs without an answer return to the checks. A
    /// lock that may have been written is uncertain until its acknowledgement, even if a later try
    /// fails. Returns the reason to wait, if there is one.
    pub(super) async fn send_locks(
        &mut self,
        writes: Vec<Write>,
    ) -> Result<Option<WaitReason>, AttemptError> {
        if writes.is_empty() {
            return Ok(None);
        }
        let (attempt, engine) = (self.attempt, &self.attempt.engine);
        // Only a lock that is sent for the first time can turn out not to have been written.
        let first: BTreeSet<Key> = {
            let mut locks = attempt.locks.lock();
            let changing = writes.iter().filter(|write| write.op.changes());
            changing
                .map(|w| w.key.clone())
                .filter(|key| locks.uncertain.insert(key.clone()))
                .collect()
        };
        let sent_at = engine.context.now();
        let outcomes = engine.store.write_all(&writes).await;
        if !outcomes.iter().any(|outcome| matches!(outcome, Outcome::Unknown(_))) {
            let round_trip = engine.context.now().saturating_sub(sent_at);
            engine.hot.board.measure_locks(writes.iter().map(|write| &write.key), round_trip);
        }
        let mut sent = Sent::default();
        for (write, outcome) in writes.into_iter().zip(outcomes) {
            match write.op {
                WriteOp::Check(_) => self.note_check(write, outcome, &mut sent),
                _ => {
                    let is_first = first.contains(&write.key);
                    self.note_lock(write, outcome, is_first, &mut sent);
                }
            }
        }
        if sent.has_evicted {
            self.drop_evicted_requests();
        }
        if !sent.locked.is_empty() {
            engine.hot.board.locked(&sent.locked, engine.context.now());
            engine.context.emit(&Event::Locked { tid: attempt.tid, documents: sent.locked });
        }
        match sent.fault {
            Some(error) => Err(error.in_transaction(attempt.tid).into()),
            None => Ok(sent.reason),
        }
    }

    /// Notes the outcome of a dry run.
    fn note_check(&mut self, write: Write, outcome: Outcome, sent: &mut Sent) {
        match outcome {
            Outcome::Holds => {}
            Outcome::Rejected(why) | Outcome::RejectedInDoubt(why) | Outcome::Unknown(why) => {
                sent.reason = Some(WaitReason::Store(why));
                self.checks.push(write);
            }
            // A run without a group shows which member is refused.
            _ if self.attempt.evict(&write.key, &RetryReason::LeftGroup) => {
                sent.has_evicted = true;
            }
            refused => sent.fault = Some(Error::from_refused(&refused, &write.key, "write it")),
        }
    }

    /// Notes the outcome of a lock. `is_first`: the lock was sent for the first time.
    fn note_lock(&mut self, write: Write, outcome: Outcome, is_first: bool, sent: &mut Sent) {
        let (attempt, engine) = (self.attempt, &self.attempt.engine);
        let key = write.key;
        if outcome.is_certainly_not_applied() && is_first {
            attempt.locks.lock().uncertain.remove(&key);
        }
        match outcome {
            Outcome::Applied(version) => {
                let Entry::Occupied(request) = self.requests.entry(key.clone()) else { return };
                let LockRequest { view, depth, .. } = request.remove();
                self.hold(&key, version, write.op, view, depth);
                sent.locked.push(key);
            }
            Outcome::Conflict => {
                engine.hot.cache.was_stale(&key, engine.context.now());
                self.requests.entry(key).or_default().view = None;
            }
            // The other members do not wait until the store accepts the lock.
            Outcome::Rejected(_)
                if is_first && attempt.evict(&key, &RetryReason::Waited(key.clone())) =>
            {
                cov_mark::hit!(refused_lock_leaves_group);
                sent.has_evicted = true;
            }
            Outcome::Rejected(why) => sent.reason = Some(WaitReason::Store(why)),
            Outcome::Unknown(_) if !engine.context.rules.decides(Rule::LockAcknowledged) => {
                let request = self.requests.remove(&key).unwrap_or_default();
                self.hold(&key, Version::new(0, 0), write.op, request.view, request.depth);
            }
            Outcome::RejectedInDoubt(why) | Outcome::Unknown(why) => {
                engine.hot.cache.forget(&key);
                self.requests.entry(key).or_default().view = None;
                sent.reason = Some(WaitReason::Store(why));
            }
            refused => {
                // A new collection of the same name may have other content than the cache.
                engine.hot.cache.forget_collection(&key.collection);
                // The store may refuse the content of the earlier commit, and that commit
                // reports the refusal.
                if !self.requests.get_mut(&key).is_some_and(LockRequest::drop_handoff) {
                    sent.fault = Some(Error::from_refused(&refused, &key, "lock it"));
                }
            }
        }
    }

    /// Notes an acknowledged lock, with the document under it.
    fn hold(&self, key: &Key, version: Version, op: WriteOp, view: Option<View>, depth: u8) {
        let (replaces, source) = match op {
            WriteOp::Replace(source, _) => (true, source),
            WriteOp::Create(source) => (false, source),
            WriteOp::Delete(_) | WriteOp::Check(_) | WriteOp::Verify(_) => return,
        };
        let (before, seen) = match view {
            Some(View::Present { stored, version, .. }) => (stored, Some(version)),
            _ => (Stored { absent: true, ..Stored::default() }, None),
        };
        let expected = seen.filter(|_| replaces);
        let before = before.locked_by(None);
        let observed = Observed {
            version: expected,
            commit_version: before.commit_version,
            image: (!before.absent).then(|| before.image.clone()),
            holder: None,
        };
        let (view, read_at) = (View::Absent, self.attempt.engine.context.now());
        let entry = ReadEntry { observed, view, read_at };
        self.attempt.working.lock().note_read(key.clone(), entry);
        let mut locks = self.attempt.locks.lock();
        locks.uncertain.remove(key);
        locks.held.insert(key.clone(), HeldLock { version, expected, before, source, depth });
    }
}
