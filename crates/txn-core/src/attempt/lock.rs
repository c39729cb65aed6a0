//! Taking locks: one bulk of conditional writes, and whatever has to be settled until each is
//! acknowledged.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::waiting::Queues;
use super::want::Want;
use super::{Attempt, Held, Mutation, ReadEntry};
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::help::Resolution;
use crate::engine::holder::Lock;
use crate::engine::store_access::ReadPreference;
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
    /// Locks documents as they are read.
    pub(super) async fn acquire_for_reading(
        self: &Arc<Self>,
        keys: Vec<Key>,
        given_up: &CancellationToken,
    ) -> Result<(), AttemptError> {
        let _one_at_a_time = self.locking.lock().await;
        if !self.progress.is_working() {
            // A read that the closure did not wait for: nobody would take its lock off.
            return Err(self.over());
        }
        let _wanted = self.wait_for_turn(&keys, given_up).await?;
        let wanted = keys.into_iter().map(|key| (key, None)).collect();
        self.acquire(wanted, Vec::new(), given_up).await
    }

    /// Locks documents, each on the version that was read, and has `checks` (dry runs) answered in the
    /// same bulk. Waits for older holders, wounds younger ones, helps committed ones. Once it is `given_up`, no further
    /// lock is sent and nobody is waited for; what was sent is settled. The caller holds `self.locking`.
    #[tracing::instrument(name = "lock", level = "debug", skip_all, fields(tid = %self.tid, attempt = self.tid.attempt()))]
    pub(super) async fn acquire(
        self: &Arc<Self>,
        wanted: BTreeMap<Key, Option<ReadEntry>>,
        mut checks: Vec<Write>,
        given_up: &CancellationToken,
    ) -> Result<(), AttemptError> {
        let mut wants: BTreeMap<Key, Want> = BTreeMap::new();
        for (key, entry) in wanted {
            if self.locks.lock().held.contains_key(&key) {
                continue;
            }
            // What is to be inserted is taken for absent: its lock is a create, and that tells.
            let inserts = self.inserts(&key);
            let blind = || Want { view: inserts.then_some(View::Absent), ..Want::default() };
            let want = entry.map_or_else(blind, |entry| Want {
                // What came from a record is no view to lock on: look again.
                view: entry.observed.version.map_or_else(
                    || entry.observed.holder.is_none().then_some(View::Absent),
                    |_| Some(entry.view),
                ),
                read: Some(entry.observed),
                ..Want::default()
            });
            wants.insert(key, want);
        }
        let mut handoffs = BTreeMap::new();
        self.start_heart();
        let mut backoff = self.engine.backoff();
        let mut queues = Queues::default();
        let mut rounds = 0_u32;
        if !given_up.is_cancelled() {
            self.begin_locking(&wants);
        }
        loop {
            if given_up.is_cancelled() {
                let locks = self.locks.lock();
                wants.retain(|key, _| locks.uncertain.contains(key));
            }
            self.leave_out_who_left(&mut wants, &mut checks);
            if wants.is_empty() && checks.is_empty() {
                if self.stepped {
                    self.engine.hot.board.won(self.tid.age());
                }
                return Ok(());
            }
            self.take_handoffs(&mut wants, &mut handoffs);
            let blank = |(_, want): &(&Key, &Want)| want.view.is_none();
            let blank: Vec<Key> = wants.iter().filter(blank).map(|(key, _)| key.clone()).collect();
            let views =
                self.engine.read_documents(&blank, ReadPreference::Primary, &self.deadline).await?;
            for (key, view) in blank.into_iter().zip(views) {
                wants.entry(key).or_default().see(view);
            }
            let met = self.resolve_holders(&queues, &mut wants).await?;
            let mut writes = std::mem::take(&mut checks);
            let mut busy = BTreeMap::new();
            let mut in_the_way = Vec::new();
            for (key, want) in &mut wants {
                let step = self.step(key, want, met.get(key));
                if self.shows_another(want, &step) {
                    self.engine.lost_document_to_another(self.tid.age());
                }
                match step {
                    Ok(Step::Write(op)) => writes.push(Write::new(key.clone(), op)),
                    Ok(Step::LookAgain) => {}
                    // The other members of a group do not wait for this document. A lock that was
                    // sent has to be settled.
                    Ok(Step::Blocked(holder))
                        if self.has_components()
                            && !self.is_set_aside(key)
                            && !self.is_applied_soon(want, holder) =>
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
                    if !document.is_some_and(|key| self.set_aside(key, &reason)) {
                        return Err(AttemptError::Retry(reason));
                    }
                }
                checks = writes.into_iter().filter(|write| !write.op.changes()).collect();
                self.leave_out_set_aside(&mut wants, &mut checks);
                // The commits before apply what is not locked any more.
                handoffs.retain(|key, _| wants.contains_key(key) && !self.is_set_aside(key));
                self.check_time()?;
                continue;
            }
            let reason = self.take_outcomes(writes, &mut wants, &mut checks).await;
            self.settle_handoffs(std::mem::take(&mut handoffs));
            let reason = reason?;
            match reason {
                // Whether the lock that was sent stands is not worth that wait: the attempt does not commit.
                _ if !busy.is_empty() && given_up.is_cancelled() => {
                    wants.retain(|key, _| !busy.contains_key(key));
                }
                _ if !busy.is_empty() => {
                    if self.waited_for_turn(&busy, given_up).await? {
                        queues = Queues::default();
                        self.begin_locking(&wants);
                    } else {
                        self.wait_for(&busy, &mut queues, &mut backoff, given_up).await?;
                    }
                }
                Some(reason) => {
                    self.engine.pause(&self.deadline, &mut backoff, reason).await?;
                }
                None => {
                    let Some(key) = wants.keys().next() else { continue };
                    let changing = WaitReason::Changing(key.clone());
                    // What others changed is tried again at once, what stands as it stood is not.
                    if rounds > 0 || wants.values().any(|want| want.again) {
                        self.engine.pause(&self.deadline, &mut backoff, changing).await?;
                    } else {
                        self.deadline.left(&*self.engine.config.clock, &changing)?;
                    }
                }
            }
            rounds += 1;
        }
    }

    fn inserts(&self, key: &Key) -> bool {
        matches!(self.working.lock().writes.get(key), Some(Mutation::Insert(_)))
    }

    /// Resolves the locks on what is wanted, each holder once. A void lock is taken out of what was seen.
    async fn resolve_holders(
        &self,
        queues: &Queues,
        wants: &mut BTreeMap<Key, Want>,
    ) -> Result<BTreeMap<Key, Resolution>, AttemptError> {
        let mut met = BTreeMap::new();
        let (mut waited_for, mut decided) = (Vec::new(), Vec::new());
        for (key, want) in &*wants {
            let Some(view) = &want.view else { continue };
            let step = locking(&self.engine.rules, self.tid, want.read.as_ref(), view);
            let Locking::Held(holder) = step else { continue };
            let lock = || Lock { key: key.clone(), view: view.clone() };
            match self.requester(queues, key, holder) {
                Requester::Courteous(_) => waited_for.push(lock()),
                _ => decided.push(lock()),
            }
        }
        for (requester, locks) in
            [(Requester::Courteous(self.tid), waited_for), (Requester::Locking(self.tid), decided)]
        {
            if !locks.is_empty() {
                met.extend(self.engine.resolve_locks(requester, locks, &self.deadline).await?);
            }
        }
        for (key, _) in met.iter().filter(|(_, met)| **met == Resolution::Aborted) {
            let view = wants.get_mut(key).and_then(|want| want.view.as_mut());
            if let Some(View::Present { stored, .. }) = view {
                stored.lock = None;
            }
        }
        Ok(met)
    }

    /// The next step towards one lock. `met`: what became of the lock in its way, if there was one.
    fn step(
        &self,
        key: &Key,
        want: &mut Want,
        met: Option<&Resolution>,
    ) -> Result<Step, AttemptError> {
        let Some(view) = &want.view else { return Ok(Step::LookAgain) };
        match (locking(&self.engine.rules, self.tid, want.read.as_ref(), view), view) {
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
                want.view = None;
                let busy = met == Some(&Resolution::Blocked);
                Ok(if busy { Step::Blocked(holder) } else { Step::LookAgain })
            }
            (Locking::LockAt(_) | Locking::Settle(_) | Locking::Held(_), View::Absent) => {
                Err(Error::damaged("an absent document has no lock").at(key).into())
            }
        }
    }

    /// Sends a bulk of dry runs and locks. What is done leaves `wants`; unanswered dry runs go back to
    /// `checks`. A lock that may have landed is uncertain, and stays so whatever a later try is answered. Returns what
    /// hinders, if something does.
    async fn take_outcomes(
        self: &Arc<Self>,
        writes: Vec<Write>,
        wants: &mut BTreeMap<Key, Want>,
        checks: &mut Vec<Write>,
    ) -> Result<Option<WaitReason>, AttemptError> {
        if writes.is_empty() {
            return Ok(None);
        }
        // Which locks are sent for the first time: only they may turn out not to have been sent at all.
        let first: BTreeSet<Key> = {
            let mut locks = self.locks.lock();
            let changing = writes.iter().filter(|write| write.op.changes());
            changing
                .map(|w| w.key.clone())
                .filter(|key| locks.uncertain.insert(key.clone()))
                .collect()
        };
        let sent = self.engine.now();
        let outcomes = self.engine.write_all(&writes).await;
        if !outcomes.iter().any(|outcome| matches!(outcome, Outcome::Unknown(_))) {
            self.engine.hot.board.measure(self.engine.now().saturating_sub(sent));
        }
        let mut reason = None;
        let mut fault = None;
        let mut set_aside = false;
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
                    // A run by itself tells whose it is.
                    _ if self.set_aside(&key, &RetryReason::LeftGroup) => set_aside = true,
                    refused => fault = Some(Error::from_refused(&refused, &key, "write it")),
                }
                continue;
            }
            if outcome.is_certainly_not_applied() && first.contains(&key) {
                self.locks.lock().uncertain.remove(&key);
            }
            match outcome {
                Outcome::Applied(version) => {
                    let Entry::Occupied(want) = wants.entry(key.clone()) else { continue };
                    let Want { view, depth, .. } = want.remove();
                    self.hold(&key, version, write.op, view, depth);
                    locked.push(key);
                }
                Outcome::Conflict => {
                    self.engine.hot.cache.was_stale(&key, self.engine.now());
                    wants.entry(key).or_default().view = None;
                }
                // The others of the group do not wait until the store accepts it.
                Outcome::Rejected(_)
                    if first.contains(&key)
                        && self.set_aside(&key, &RetryReason::Waited(key.clone())) =>
                {
                    cov_mark::hit!(refused_lock_leaves_group);
                    set_aside = true;
                }
                Outcome::Rejected(why) => reason = Some(WaitReason::Store(why)),
                Outcome::Unknown(_) if !self.engine.rules.decides(Rule::LockAcknowledged) => {
                    let Want { view, depth, .. } = wants.remove(&key).unwrap_or_default();
                    self.hold(&key, Version::new(0, 0), write.op, view, depth);
                }
                Outcome::RejectedInDoubt(why) | Outcome::Unknown(why) => {
                    self.engine.hot.cache.forget(&key);
                    wants.entry(key).or_default().view = None;
                    reason = Some(WaitReason::Store(why));
                }
                refused => {
                    // Whatever is remembered of a collection that is gone is not what stands in the next of its name.
                    self.engine.hot.cache.forget_collection(&key.collection);
                    // The content of the commit before may be refused, which that commit reports.
                    if !wants.get_mut(&key).is_some_and(Want::gives_up_handoff) {
                        fault = Some(Error::from_refused(&refused, &key, "lock it"));
                    }
                }
            }
        }
        if set_aside {
            self.leave_out_set_aside(wants, checks);
        }
        if !locked.is_empty() {
            self.engine.hot.board.locked(&locked, self.engine.now());
            self.engine.emit(&Event::Locked { tid: self.tid, documents: locked });
        }
        if let Some(error) = fault {
            return Err(error.in_transaction(self.tid).into());
        }
        Ok(reason)
    }

    /// A lock was acknowledged, over what was seen.
    pub(super) fn hold(
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
            tid: before.tid,
            image: (!before.absent).then(|| before.image.clone()),
            holder: None,
        };
        let (view, read_at) = (View::Absent, self.engine.now());
        let entry = ReadEntry { observed, view, read_at };
        self.working.lock().note_read(key.clone(), entry);
        let mut locks = self.locks.lock();
        locks.uncertain.remove(key);
        locks.held.insert(key.clone(), Held { version, expected, before, source, depth });
    }

    /// A document that is to be inserted exists.
    pub(crate) fn exists(key: &Key) -> Error {
        Error::new(ErrorKind::Exists, "cannot insert it: it exists already").at(key)
    }
}

pub(super) enum Step {
    Write(WriteOp),
    LookAgain,
    Blocked(AttemptId),
}
