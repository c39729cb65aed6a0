//! Lock acquisition by bulks of conditional writes.
//!
//! A lock counts once its write is acknowledged. A lock without an answer is settled by a further
//! write.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::attempt::heartbeat::start_heart;
use crate::attempt::locking::hot_locks::{is_applied_soon, shows_another};
use crate::attempt::locking::lock_request::{LockRequest, LockStep};
use crate::attempt::locking::phase::LockPhase;
use crate::attempt::locking::steps::step;
use crate::attempt::locking::waiting::{LockWaits, wait_for_turn, waited_for_turn};
use crate::attempt::{Attempt, ReadEntry};
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::holders::foreign_lock::ForeignLock;
use crate::engine::recovery::roll_forward::Resolution;
use crate::engine::store::store_access::ReadPreference;
use crate::engine::wait_reason::WaitReason;
use txn_protocol::document::View;
use txn_protocol::ids::AttemptId;
use txn_protocol::rules::conflict::Requester;
use txn_protocol::rules::lock::{Locking, locking};
use txn_store::{Key, Write};

/// Locks documents when a pessimistic closure reads them.
pub(in crate::attempt) async fn acquire_for_reading(
    attempt: &Arc<Attempt>,
    keys: Vec<Key>,
    given_up: &CancellationToken,
) -> Result<(), AttemptError> {
    let _one_at_a_time = attempt.locking.lock().await;
    if !attempt.progress.is_working() {
        // The closure did not wait for this read, so no task would release its lock.
        return Err(attempt.over());
    }
    let _wanted = wait_for_turn(attempt, &keys, given_up).await?;
    let wanted = keys.into_iter().map(|key| (key, None)).collect();
    acquire(attempt, wanted, Vec::new(), given_up).await
}

/// Locks documents at their present versions.
///
/// The attempt fails if a document has changed since the attempt read it.
/// The same bulk carries `checks`, which are dry runs. The attempt waits for holders that go
/// first, wounds younger ones after their grace, and rolls committed ones forward. After `given_up`
/// the attempt sends no further lock and waits for no holder, but settles the locks that were sent.
/// The caller holds `attempt.locking`.
#[tracing::instrument(
    name = "lock",
    parent = &attempt.span,
    level = "debug",
    skip_all,
    fields(tid = %attempt.tid, attempt = attempt.tid.attempt(), db.operation.batch.size = wanted.len())
)]
pub(in crate::attempt) async fn acquire(
    attempt: &Arc<Attempt>,
    wanted: BTreeMap<Key, Option<ReadEntry>>,
    checks: Vec<Write>,
    given_up: &CancellationToken,
) -> Result<(), AttemptError> {
    let mut phase = LockPhase::new(attempt, wanted, checks, given_up);
    start_heart(attempt);
    if !given_up.is_cancelled() {
        phase.prolong_turn();
    }
    while phase.is_open() {
        phase.run_round().await?;
    }
    if attempt.is_manual {
        attempt.engine.hot.board.won(attempt.tid.age());
    }
    Ok(())
}

/// The next steps of all requests.
struct NextSteps {
    writes: Vec<Write>,
    /// The documents whose holders go first.
    busy: BTreeMap<Key, AttemptId>,
    /// Why requests cannot succeed, or delay the other members.
    in_the_way: Vec<RetryReason>,
}

impl LockPhase<'_> {
    /// Whether locks or dry runs are left.
    fn is_open(&mut self) -> bool {
        if self.given_up.is_cancelled() {
            let locks = self.attempt.locks.lock();
            self.requests.retain(|key, _| locks.uncertain.contains(key));
        }
        self.drop_unsent_evicted();
        !self.requests.is_empty() || !self.checks.is_empty()
    }

    async fn run_round(&mut self) -> Result<(), AttemptError> {
        self.take_handoffs();
        self.read_unknown().await?;
        let resolved = self.resolve_holders().await?;
        let NextSteps { writes, busy, in_the_way } = self.next_steps(&resolved)?;
        if !in_the_way.is_empty() {
            return self.evict_blocked(in_the_way, writes);
        }
        let reason = self.send_locks(writes).await;
        self.confirm_handoffs();
        self.wait(&busy, reason?).await?;
        self.rounds += 1;
        Ok(())
    }

    /// Reads the documents whose state is unknown.
    async fn read_unknown(&mut self) -> Result<(), AttemptError> {
        let attempt = self.attempt;
        let blank = |(_, request): &(&Key, &LockRequest)| request.view.is_none();
        let blank: Vec<Key> =
            self.requests.iter().filter(blank).map(|(key, _)| key.clone()).collect();
        let reads =
            attempt.engine.store.read_documents(&blank, ReadPreference::Primary, &attempt.deadline);
        for (key, view) in blank.iter().zip(reads.await?) {
            self.requests.entry(key.clone()).or_default().see(view);
        }
        Ok(())
    }

    /// Resolves the locks on the requested documents, each holder once.
    ///
    /// A void lock is removed from the view of its request.
    async fn resolve_holders(&mut self) -> Result<BTreeMap<Key, Resolution>, AttemptError> {
        let mut resolved = BTreeMap::new();
        let (mut waited_for, mut decided) = (Vec::new(), Vec::new());
        for (key, request) in &self.requests {
            let Some(view) = &request.view else { continue };
            let step = locking(
                &self.attempt.engine.context.rules,
                self.attempt.tid,
                request.read.as_ref(),
                view,
            );
            let Locking::Held(holder) = step else { continue };
            let lock = || ForeignLock { key: key.clone(), view: view.clone() };
            match self.waits.requester(key, holder) {
                Requester::WithinGrace(_) => waited_for.push(lock()),
                _ => decided.push(lock()),
            }
        }
        for (requester, locks) in [
            (Requester::WithinGrace(self.attempt.tid), waited_for),
            (Requester::Locking(self.attempt.tid), decided),
        ] {
            if !locks.is_empty() {
                resolved.extend(
                    self.attempt
                        .engine
                        .recovery
                        .resolve_locks(requester, locks, &self.attempt.deadline)
                        .await?,
                );
            }
        }
        for (key, _) in resolved.iter().filter(|(_, resolved)| **resolved == Resolution::Void) {
            let view = self.requests.get_mut(key).and_then(|request| request.view.as_mut());
            if let Some(View::Present { stored, .. }) = view {
                stored.lock = None;
            }
        }
        Ok(resolved)
    }

    /// Chooses the next step of each request.
    fn next_steps(
        &mut self,
        resolved: &BTreeMap<Key, Resolution>,
    ) -> Result<NextSteps, AttemptError> {
        let attempt = self.attempt;
        let members = &attempt.hot.members;
        let mut writes = std::mem::take(&mut self.checks);
        let (mut busy, mut in_the_way) = (BTreeMap::new(), Vec::new());
        for (key, request) in &mut self.requests {
            let step = step(attempt, key, request, resolved.get(key));
            if shows_another(attempt, request, &step) {
                attempt.engine.turns.lost_document_to_another(attempt.tid.age());
            }
            match step {
                Ok(LockStep::Write(op)) => writes.push(Write::new(key.clone(), op)),
                Ok(LockStep::LookAgain) => {}
                // The other members of the group do not wait for this document. A lock that was
                // sent has to be settled.
                Ok(LockStep::Blocked(holder))
                    if members.has_several_components()
                        && !members.is_evicted(key)
                        && !is_applied_soon(attempt, request, holder) =>
                {
                    in_the_way.push(RetryReason::Waited(key.clone()));
                }
                Ok(LockStep::Blocked(holder)) => {
                    busy.insert(key.clone(), holder);
                }
                Err(AttemptError::Retry(reason)) => in_the_way.push(reason),
                Err(error) => return Err(error),
            }
        }
        Ok(NextSteps { writes, busy, in_the_way })
    }

    /// Evicts the members whose documents cannot be locked now.
    ///
    /// Fails if no other member remains.
    fn evict_blocked(
        &mut self,
        in_the_way: Vec<RetryReason>,
        writes: Vec<Write>,
    ) -> Result<(), AttemptError> {
        let attempt = self.attempt;
        for reason in in_the_way {
            let document = reason.document();
            if !document.is_some_and(|key| attempt.evict(key, &reason)) {
                return Err(AttemptError::Retry(reason));
            }
        }
        self.checks = writes.into_iter().filter(|write| !write.op.changes()).collect();
        self.drop_evicted_requests();
        // The earlier commits apply the documents that are no longer locked.
        let (requests, members) = (&self.requests, &attempt.hot.members);
        self.handoffs.retain(|key, _| requests.contains_key(key) && !members.is_evicted(key));
        attempt.check_time()
    }

    /// Begins to lock again after a wait for a turn.
    fn begin_again(&mut self) {
        self.waits = LockWaits::new(self.attempt);
        self.prolong_turn();
    }

    /// Waits before the next round, if a round follows.
    ///
    /// `reason`: why the store did not complete the bulk.
    async fn wait(
        &mut self,
        busy: &BTreeMap<Key, AttemptId>,
        reason: Option<WaitReason>,
    ) -> Result<(), AttemptError> {
        let (attempt, context) = (self.attempt, &self.attempt.engine.context);
        if !busy.is_empty() {
            if self.given_up.is_cancelled() {
                // The attempt does not commit, so that settling its sent locks is not worth this
                // wait.
                self.requests.retain(|key, _| !busy.contains_key(key));
                return Ok(());
            }
            if waited_for_turn(attempt, busy.keys(), self.given_up).await? {
                self.begin_again();
                return Ok(());
            }
            return self.waits.wait_for(busy, &mut self.backoff, self.given_up).await;
        }
        self.waits.note_holders(busy);
        if let Some(reason) = reason {
            return context.pause(&attempt.deadline, &mut self.backoff, reason).await;
        }
        // Another process may change the documents faster than this one reads them.
        if self.rounds > 0 && waited_for_turn(attempt, self.requests.keys(), self.given_up).await? {
            self.begin_again();
            return Ok(());
        }
        let Some(key) = self.requests.keys().next() else { return Ok(()) };
        let changing = WaitReason::Changing(key.clone());
        // A changed document is locked again at once, an unchanged one after a pause.
        if self.rounds > 0 || self.requests.values().any(|request| request.again) {
            context.pause(&attempt.deadline, &mut self.backoff, changing).await
        } else {
            attempt.deadline.left(&*context.config.clock, &changing).map(drop)
        }
    }
}
