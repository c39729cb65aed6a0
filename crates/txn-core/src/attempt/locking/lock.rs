//! Lock acquisition by bulks of conditional writes.
//!
//! A lock counts once its write is acknowledged. A lock without an answer is settled by a further
//! write.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::attempt::locking::lock_request::LockRequest;
use crate::attempt::locking::waiting::LockWaits;
use crate::attempt::{Attempt, HeldLock, Mutation, ReadEntry};
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::holders::lock::Lock;
use crate::engine::recovery::roll_forward::Resolution;
use crate::engine::store::store_access::ReadPreference;
use crate::engine::wait_reason::WaitReason;
use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::store::{Key, Outcome, Version, Write, WriteOp};
use txn_protocol::document::{Stored, View};
use txn_protocol::ids::AttemptId;
use txn_protocol::rule::Rule;
use txn_protocol::rules::conflict::Requester;
use txn_protocol::rules::lock::{Locking, locking};
use txn_protocol::rules::validate::Observed;

impl Attempt {
    /// Locks documents when a pessimistic closure reads them.
    pub(in crate::attempt) async fn acquire_for_reading(
        self: &Arc<Self>,
        keys: Vec<Key>,
        given_up: &CancellationToken,
    ) -> Result<(), AttemptError> {
        let _one_at_a_time = self.locking.lock().await;
        if !self.progress.is_working() {
            // The closure did not wait for this read, so no task would release its lock.
            return Err(self.over());
        }
        let _wanted = self.wait_for_turn(&keys, given_up).await?;
        let wanted = keys.into_iter().map(|key| (key, None)).collect();
        self.acquire(wanted, Vec::new(), given_up).await
    }

    /// Locks documents at the versions that were read.
    ///
    /// The same bulk carries `checks`, which are dry runs. The attempt waits for older holders,
    /// wounds younger ones, and rolls committed ones forward. After `given_up` the attempt sends no
    /// further lock and waits for no holder, but settles the locks that were sent. The caller holds
    /// `self.locking`.
    #[tracing::instrument(name = "lock", level = "debug", skip_all, fields(tid = %self.tid, attempt = self.tid.attempt()))]
    pub(in crate::attempt) async fn acquire(
        self: &Arc<Self>,
        wanted: BTreeMap<Key, Option<ReadEntry>>,
        mut checks: Vec<Write>,
        given_up: &CancellationToken,
    ) -> Result<(), AttemptError> {
        let mut requests: BTreeMap<Key, LockRequest> = BTreeMap::new();
        for (key, entry) in wanted {
            if self.locks.lock().held.contains_key(&key) {
                continue;
            }
            // An insert takes the document for absent: its lock is a create, which fails otherwise.
            let inserts = self.inserts(&key);
            let blind =
                || LockRequest { view: inserts.then_some(View::Absent), ..LockRequest::default() };
            let request = entry.map_or_else(blind, |entry| LockRequest {
                // Content from a record is no view to lock on, so the document is read again.
                view: entry.observed.version.map_or_else(
                    || entry.observed.holder.is_none().then_some(View::Absent),
                    |_| Some(entry.view),
                ),
                read: Some(entry.observed),
                ..LockRequest::default()
            });
            requests.insert(key, request);
        }
        let mut handoffs = BTreeMap::new();
        self.start_heart();
        let mut backoff = self.engine.context.backoff();
        let mut waits = LockWaits::default();
        let mut rounds = 0_u32;
        if !given_up.is_cancelled() {
            self.begin_locking(&requests);
        }
        loop {
            if given_up.is_cancelled() {
                let locks = self.locks.lock();
                requests.retain(|key, _| locks.uncertain.contains(key));
            }
            self.drop_unsent_evicted(&mut requests, &mut checks);
            if requests.is_empty() && checks.is_empty() {
                if self.stepped {
                    self.engine.hot.board.won(self.tid.age());
                }
                return Ok(());
            }
            self.take_handoffs(&mut requests, &mut handoffs);
            let blank = |(_, request): &(&Key, &LockRequest)| request.view.is_none();
            let blank: Vec<Key> =
                requests.iter().filter(blank).map(|(key, _)| key.clone()).collect();
            let views = self
                .engine
                .store
                .read_documents(&blank, ReadPreference::Primary, &self.deadline)
                .await?;
            for (key, view) in blank.into_iter().zip(views) {
                requests.entry(key).or_default().see(view);
            }
            let met = self.resolve_holders(&waits, &mut requests).await?;
            let mut writes = std::mem::take(&mut checks);
            let mut busy = BTreeMap::new();
            let mut in_the_way = Vec::new();
            for (key, request) in &mut requests {
                let step = self.step(key, request, met.get(key));
                if self.shows_another(request, &step) {
                    self.engine.turns.lost_document_to_another(self.tid.age());
                }
                match step {
                    Ok(Step::Write(op)) => writes.push(Write::new(key.clone(), op)),
                    Ok(Step::LookAgain) => {}
                    // The other members of the group do not wait for this document. A lock that was
                    // sent has to be settled.
                    Ok(Step::Blocked(holder))
                        if self.has_several_members()
                            && !self.is_evicted(key)
                            && !self.is_applied_soon(request, holder) =>
                    {
                        in_the_way.push(RetryReason::Waited(key.clone()));
                    }
                    Ok(Step::Blocked(holder)) => {
                        busy.insert(key.clone(), holder);
                    }
                    Err(AttemptError::Retry(reason)) => in_the_way.push(reason),
                    Err(error) => return Err(error),
                }
            }
            if !in_the_way.is_empty() {
                for reason in in_the_way {
                    let document = reason.document();
                    if !document.is_some_and(|key| self.evict(key, &reason)) {
                        return Err(AttemptError::Retry(reason));
                    }
                }
                checks = writes.into_iter().filter(|write| !write.op.changes()).collect();
                self.drop_evicted_requests(&mut requests, &mut checks);
                // The earlier commits apply the documents that are no longer locked.
                handoffs.retain(|key, _| requests.contains_key(key) && !self.is_evicted(key));
                self.check_time()?;
                continue;
            }
            let reason = self.send_locks(writes, &mut requests, &mut checks).await;
            self.settle_handoffs(std::mem::take(&mut handoffs));
            let reason = reason?;
            match reason {
                // The attempt does not commit, so that settling its sent locks is not worth this
                // wait.
                _ if !busy.is_empty() && given_up.is_cancelled() => {
                    requests.retain(|key, _| !busy.contains_key(key));
                }
                _ if !busy.is_empty() => {
                    if self.waited_for_turn(&busy, given_up).await? {
                        waits = LockWaits::default();
                        self.begin_locking(&requests);
                    } else {
                        self.wait_for(&busy, &mut waits, &mut backoff, given_up).await?;
                    }
                }
                Some(reason) => {
                    self.engine.context.pause(&self.deadline, &mut backoff, reason).await?;
                }
                None => {
                    let Some(key) = requests.keys().next() else { continue };
                    let changing = WaitReason::Changing(key.clone());
                    // A changed document is locked again at once, an unchanged one after a pause.
                    if rounds > 0 || requests.values().any(|request| request.again) {
                        self.engine.context.pause(&self.deadline, &mut backoff, changing).await?;
                    } else {
                        self.deadline.left(&*self.engine.context.config.clock, &changing)?;
                    }
                }
            }
            rounds += 1;
        }
    }

    fn inserts(&self, key: &Key) -> bool {
        matches!(self.working.lock().writes.get(key), Some(Mutation::Insert(_)))
    }

    /// Resolves the locks on the requested documents, each holder once.
    ///
    /// A void lock is removed from the view of its request.
    async fn resolve_holders(
        &self,
        waits: &LockWaits,
        requests: &mut BTreeMap<Key, LockRequest>,
    ) -> Result<BTreeMap<Key, Resolution>, AttemptError> {
        let mut met = BTreeMap::new();
        let (mut waited_for, mut decided) = (Vec::new(), Vec::new());
        for (key, request) in &*requests {
            let Some(view) = &request.view else { continue };
            let step = locking(&self.engine.context.rules, self.tid, request.read.as_ref(), view);
            let Locking::Held(holder) = step else { continue };
            let lock = || Lock { key: key.clone(), view: view.clone() };
            match self.requester(waits, key, holder) {
                Requester::WithinGrace(_) => waited_for.push(lock()),
                _ => decided.push(lock()),
            }
        }
        for (requester, locks) in [
            (Requester::WithinGrace(self.tid), waited_for),
            (Requester::Locking(self.tid), decided),
        ] {
            if !locks.is_empty() {
                met.extend(
                    self.engine.recovery.resolve_locks(requester, locks, &self.deadline).await?,
                );
            }
        }
        for (key, _) in met.iter().filter(|(_, met)| **met == Resolution::Void) {
            let view = requests.get_mut(key).and_then(|request| request.view.as_mut());
            if let Some(View::Present { stored, .. }) = view {
                stored.lock = None;
            }
        }
        Ok(met)
    }

    /// Returns the next step towards one lock.
    ///
    /// `met`: the resolution of the lock that blocks the document, if there is one.
    fn step(
        &self,
        key: &Key,
        request: &mut LockRequest,
        met: Option<&Resolution>,
    ) -> Result<Step, AttemptError> {
        let Some(view) = &request.view else { return Ok(Step::LookAgain) };
        match (locking(&self.engine.context.rules, self.tid, request.read.as_ref(), view), view) {
            (Locking::CreatePlaceholder, _) => {
                Ok(Step::Write(WriteOp::Create(Stored::placeholder(self.tid).encode())))
            }
            (Locking::LockAt(version), View::Present { stored, .. }) => {
                if stored.absent && !stored.is_bare_placeholder() {
                    cov_mark::hit!(placeholder_was_filled);
                    let message =
                        "another client wrote content into the placeholder of a transaction";
                    return Err(Error::damaged(message).at(key).into());
                }
                let locked = stored.locked_by(Some(self.tid)).encode();
                Ok(Step::Write(WriteOp::Replace(locked, version)))
            }
            (Locking::Settle(version), View::Present { source, .. }) => {
                cov_mark::hit!(lost_lock_found_again);
                Ok(Step::Write(WriteOp::Replace(source.clone(), version)))
            }
            (Locking::Changed, _) => Err(AttemptError::Retry(RetryReason::Changed(key.clone()))),
            (Locking::Held(holder), View::Present { .. }) => {
                request.view = None;
                let busy = met == Some(&Resolution::Blocked);
                Ok(if busy { Step::Blocked(holder) } else { Step::LookAgain })
            }
            (Locking::LockAt(_) | Locking::Settle(_) | Locking::Held(_), View::Absent) => {
                Err(Error::damaged("an absent document has no lock").at(key).into())
            }
        }
    }

    /// Sends a bulk of dry runs and locks.
    ///
    /// Acknowledged locks leave `requests`. Dry runs without an answer return to `checks`. A lock
    /// that may have been written is uncertain until its acknowledgement, even if a later try
    /// fails. Returns the reason to wait, if there is one.
    async fn send_locks(
        self: &Arc<Self>,
        writes: Vec<Write>,
        requests: &mut BTreeMap<Key, LockRequest>,
        checks: &mut Vec<Write>,
    ) -> Result<Option<WaitReason>, AttemptError> {
        if writes.is_empty() {
            return Ok(None);
        }
        // Only a lock that is sent for the first time can turn out not to have been written.
        let first: BTreeSet<Key> = {
            let mut locks = self.locks.lock();
            let changing = writes.iter().filter(|write| write.op.changes());
            changing
                .map(|w| w.key.clone())
                .filter(|key| locks.uncertain.insert(key.clone()))
                .collect()
        };
        let sent = self.engine.context.now();
        let outcomes = self.engine.store.write_all(&writes).await;
        if !outcomes.iter().any(|outcome| matches!(outcome, Outcome::Unknown(_))) {
            self.engine.hot.board.measure(self.engine.context.now().saturating_sub(sent));
        }
        let mut reason = None;
        let mut fault = None;
        let mut has_evicted = false;
        let mut locked = Vec::new();
        for (write, outcome) in writes.into_iter().zip(outcomes) {
            let key = write.key.clone();
            if matches!(write.op, WriteOp::Check(_)) {
                match outcome {
                    Outcome::Holds => {}
                    Outcome::Rejected(why)
                    | Outcome::RejectedInDoubt(why)
                    | Outcome::Unknown(why) => {
                        reason = Some(WaitReason::Store(why));
                        checks.push(write);
                    }
                    // A run without a group shows which member is refused.
                    _ if self.evict(&key, &RetryReason::LeftGroup) => has_evicted = true,
                    refused => fault = Some(Error::from_refused(&refused, &key, "write it")),
                }
                continue;
            }
            if outcome.is_certainly_not_applied() && first.contains(&key) {
                self.locks.lock().uncertain.remove(&key);
            }
            match outcome {
                Outcome::Applied(version) => {
                    let Entry::Occupied(request) = requests.entry(key.clone()) else { continue };
                    let LockRequest { view, depth, .. } = request.remove();
                    self.hold(&key, version, write.op, view, depth);
                    locked.push(key);
                }
                Outcome::Conflict => {
                    self.engine.hot.cache.was_stale(&key, self.engine.context.now());
                    requests.entry(key).or_default().view = None;
                }
                // The other members do not wait until the store accepts the lock.
                Outcome::Rejected(_)
                    if first.contains(&key)
                        && self.evict(&key, &RetryReason::Waited(key.clone())) =>
                {
                    cov_mark::hit!(refused_lock_leaves_group);
                    has_evicted = true;
                }
                Outcome::Rejected(why) => reason = Some(WaitReason::Store(why)),
                Outcome::Unknown(_)
                    if !self.engine.context.rules.decides(Rule::LockAcknowledged) =>
                {
                    let LockRequest { view, depth, .. } = requests.remove(&key).unwrap_or_default();
                    self.hold(&key, Version::new(0, 0), write.op, view, depth);
                }
                Outcome::RejectedInDoubt(why) | Outcome::Unknown(why) => {
                    self.engine.hot.cache.forget(&key);
                    requests.entry(key).or_default().view = None;
                    reason = Some(WaitReason::Store(why));
                }
                refused => {
                    // A new collection of the same name may have other content than the cache.
                    self.engine.hot.cache.forget_collection(&key.collection);
                    // The store may refuse the content of the earlier commit, and that commit
                    // reports the refusal.
                    if !requests.get_mut(&key).is_some_and(LockRequest::drop_handoff) {
                        fault = Some(Error::from_refused(&refused, &key, "lock it"));
                    }
                }
            }
        }
        if has_evicted {
            self.drop_evicted_requests(requests, checks);
        }
        if !locked.is_empty() {
            self.engine.hot.board.locked(&locked, self.engine.context.now());
            self.engine.context.emit(&Event::Locked { tid: self.tid, documents: locked });
        }
        if let Some(error) = fault {
            return Err(error.in_transaction(self.tid).into());
        }
        Ok(reason)
    }

    /// Notes an acknowledged lock, with the document under it.
    pub(in crate::attempt) fn hold(
        &self,
        key: &Key,
        version: Version,
        op: WriteOp,
        view: Option<View>,
        depth: u8,
    ) {
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
        let (view, read_at) = (View::Absent, self.engine.context.now());
        let entry = ReadEntry { observed, view, read_at };
        self.working.lock().note_read(key.clone(), entry);
        let mut locks = self.locks.lock();
        locks.uncertain.remove(key);
        locks.held.insert(key.clone(), HeldLock { version, expected, before, source, depth });
    }

    /// The error of an insert of an existing document.
    pub(crate) fn exists(key: &Key) -> Error {
        Error::new(ErrorKind::Exists, "cannot insert it: it exists already").at(key)
    }
}

pub(in crate::attempt) enum Step {
    Write(WriteOp),
    LookAgain,
    Blocked(AttemptId),
}
