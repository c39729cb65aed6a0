//! Validation: whether documents that were only read are still current.
//!
//! Validation follows the acknowledgement of every lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::attempt::{Attempt, HeldLock, ReadEntry};
use crate::config::ReadMode;
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::holders::lock::Lock;
use crate::engine::recovery::roll_forward::Resolution;
use crate::engine::store::store_access::ReadPreference;
use crate::engine::wait_reason::WaitReason;
use crate::error::Error;
use crate::store::{Key, Outcome, Write, WriteOp};
use txn_protocol::document::View;
use txn_protocol::ids::AttemptId;
use txn_protocol::machines::attempt::{locks_absences, validated_first};
use txn_protocol::rule::Rule;
use txn_protocol::rules::conflict::Requester;
use txn_protocol::rules::validate::{Observed, Validity, validity};

/// A transaction without locks waits this often before a retry.
const MOST_WAITS: u32 = 16;

impl Attempt {
    /// Validates the reads of a closure that failed.
    ///
    /// The error of the closure may rest on reads of different states.
    pub(crate) async fn examine(self: &Arc<Self>) -> Result<(), AttemptError> {
        let this = self.clone();
        let examined = async move {
            let _one_at_a_time = this.locking.lock().await;
            if !this.progress.is_working() {
                return Err(this.over());
            }
            this.validate_all().await
        };
        self.spawn_tracked(examined).await
    }

    /// Validates all reads as a read-only transaction does.
    ///
    /// The held locks are verified, too. The caller holds `self.locking`.
    pub(in crate::attempt) async fn validate_all(self: &Arc<Self>) -> Result<(), AttemptError> {
        let reads = self.working.lock().reads.clone();
        let mut only_read: BTreeMap<Key, ReadEntry> = {
            let locks = self.locks.lock();
            reads.into_iter().filter(|(key, _)| !locks.held.contains_key(key)).collect()
        };
        let wanted = self.take_reads_to_lock(&mut only_read, false);
        if !wanted.is_empty() {
            self.acquire(wanted, Vec::new(), &CancellationToken::new()).await?;
        }
        self.validate(only_read).await?;
        self.verify_locks().await
    }

    /// Takes out the reads that must be locked instead of validated.
    pub(in crate::attempt) fn take_reads_to_lock(
        &self,
        only_read: &mut BTreeMap<Key, ReadEntry>,
        has_writes: bool,
    ) -> BTreeMap<Key, Option<ReadEntry>> {
        let absent = only_read.values().filter(|read| read.observed.image.is_none()).count();
        let lock_absent =
            locks_absences(&self.engine.context.rules, has_writes, only_read.len(), absent);
        let lock = |read: &ReadEntry| {
            self.options.read_mode == ReadMode::Lock
                || (lock_absent && read.observed.image.is_none())
        };
        let taken = only_read.extract_if(.., |_, read| lock(read));
        taken.map(|(key, read)| (key, Some(read))).collect()
    }

    /// Validates reads.
    ///
    /// A transaction that holds locks resolves conflicts by age, and takes over the locks of
    /// wounded transactions. A transaction without locks wounds no other transaction. The caller
    /// holds `self.locking`, if the caller holds locks.
    #[tracing::instrument(name = "validate", level = "debug", skip_all, fields(tid = %self.tid, attempt = self.tid.attempt()))]
    pub(in crate::attempt) async fn validate(
        self: &Arc<Self>,
        mut reads: BTreeMap<Key, ReadEntry>,
    ) -> Result<(), AttemptError> {
        let engine = &self.engine;
        let locks_nothing = self.locks.lock().held.is_empty();
        let requester =
            if locks_nothing { Requester::NonPreempting } else { Requester::Locking(self.tid) };
        if !engine.context.rules.decides(Rule::ValidateReads) {
            return Ok(());
        }
        let mut backoff = engine.context.backoff();
        let absent = |read: &ReadEntry| read.observed.image.is_none();
        let all = reads.values().all(absent);
        let first = |_: &Key, read: &mut ReadEntry| {
            validated_first(&engine.context.rules, absent(read), all)
        };
        // Several absences are locked, not validated.
        let alone = reads.extract_if(.., first).collect();
        self.validate_round(alone, requester, &mut backoff).await?;
        self.validate_round(reads, requester, &mut backoff).await
    }

    async fn validate_round(
        self: &Arc<Self>,
        mut reads: BTreeMap<Key, ReadEntry>,
        requester: Requester,
        backoff: &mut crate::clock::Backoff,
    ) -> Result<(), AttemptError> {
        let engine = &self.engine;
        let (mut waits, mut since) = (0, None);
        loop {
            // Members may have left meanwhile.
            reads.retain(|key, _| !self.is_evicted(key));
            if reads.is_empty() {
                return Ok(());
            }
            let verifies: Vec<Write> = reads
                .iter()
                .filter(|(_, read)| read.observed.holder.is_none())
                .map(|(key, read)| Write::new(key.clone(), WriteOp::Verify(read.observed.version)))
                .collect();
            let mut reason = None;
            let mut doubtful: Vec<Key> = reads
                .iter()
                .filter(|(_, read)| read.observed.holder.is_some())
                .map(|(key, _)| key.clone())
                .collect();
            if !verifies.is_empty() {
                let outcomes = engine.store.write_all(&verifies).await;
                for (write, outcome) in verifies.into_iter().zip(outcomes) {
                    match outcome {
                        Outcome::Holds => {
                            reads.remove(&write.key);
                        }
                        Outcome::Conflict => {
                            engine.hot.cache.was_stale(&write.key, engine.context.now());
                            doubtful.push(write.key);
                        }
                        Outcome::Rejected(why)
                        | Outcome::RejectedInDoubt(why)
                        | Outcome::Unknown(why) => {
                            reason = Some(WaitReason::Store(why));
                        }
                        refused => {
                            let error =
                                Error::from_refused(&refused, &write.key, "validate a read");
                            return Err(error.in_transaction(self.tid).into());
                        }
                    }
                }
            }
            let views = engine
                .store
                .read_documents(&doubtful, ReadPreference::Primary, &self.deadline)
                .await?;
            let seen = doubtful.into_iter().zip(views).collect();
            if let Some((key, holder)) = self.revalidate(seen, &mut reads, requester).await? {
                waits += 1;
                // Other transactions of this process wait for the documents of a group, so the
                // group starts again early.
                let is_awaited = self.hot.reservations.has_documents();
                if requester == Requester::NonPreempting && (waits > MOST_WAITS || is_awaited) {
                    return Err(AttemptError::Retry(RetryReason::Waited(key)));
                }
                self.refuse_to_wait_for_oneself(&key, holder)?;
                self.wait_with_patience(&key, &mut since)?;
                reason = Some(WaitReason::Others { key, holder });
            }
            let changing = reads.keys().next().cloned().map(WaitReason::Changing);
            if let Some(changing) = changing {
                engine.context.pause(&self.deadline, backoff, reason.unwrap_or(changing)).await?;
            }
        }
    }

    /// Verifies that all locks were held at the same time.
    ///
    /// A transaction that only locked reads has no commit that a wound would compete with. A lock
    /// that is still held has been held since before the last lock was taken.
    pub(in crate::attempt) async fn verify_locks(&self) -> Result<(), AttemptError> {
        let engine = &self.engine;
        if !engine.context.rules.decides(Rule::VerifyReadLocks) {
            return Ok(());
        }
        let mut open: BTreeSet<Key> = self.locks.lock().held.keys().cloned().collect();
        let mut backoff = engine.context.backoff();
        while !open.is_empty() {
            let verifies: Vec<Write> = {
                let locks = self.locks.lock();
                let held = locks.held.iter().filter(|(key, _)| open.contains(*key));
                let verify = |lock: &HeldLock| WriteOp::Verify(Some(lock.version));
                held.map(|(key, lock)| Write::new(key.clone(), verify(lock))).collect()
            };
            let outcomes = engine.store.write_all(&verifies).await;
            let mut moved = Vec::new();
            let mut reason = None;
            for (write, outcome) in verifies.into_iter().zip(outcomes) {
                match outcome {
                    Outcome::Holds => {
                        open.remove(&write.key);
                    }
                    Outcome::Conflict => moved.push(write.key),
                    Outcome::Rejected(why)
                    | Outcome::RejectedInDoubt(why)
                    | Outcome::Unknown(why) => reason = Some(WaitReason::Store(why)),
                    refused => {
                        let error = Error::from_refused(&refused, &write.key, "verify a lock");
                        return Err(error.in_transaction(self.tid).into());
                    }
                }
            }
            let views = engine
                .store
                .read_documents(&moved, ReadPreference::Primary, &self.deadline)
                .await?;
            for (key, view) in moved.iter().zip(views) {
                self.find_lock_again(key, &view)?;
                reason.get_or_insert_with(|| WaitReason::Changing(key.clone()));
            }
            if let Some(reason) = reason {
                engine.context.pause(&self.deadline, &mut backoff, reason).await?;
            }
        }
        Ok(())
    }

    /// Finds a held lock again after a touch by another process.
    ///
    /// The lock is still the lock that was taken: its write was conditional on a version, so it
    /// landed once. A placeholder has no such condition, and counts at its version only.
    fn find_lock_again(&self, key: &Key, view: &View) -> Result<(), AttemptError> {
        let mut locks = self.locks.lock();
        let Some(held) = locks.held.get_mut(key) else { return Ok(()) };
        match view {
            View::Present { version, stored, .. }
                if !held.before.absent
                    && stored.lock == Some(self.tid)
                    && stored.commit_version == held.before.commit_version
                    && stored.image == held.before.image =>
            {
                held.version = *version;
                Ok(())
            }
            _ => Err(AttemptError::Retry(RetryReason::Wounded)),
        }
    }

    /// Reads the documents again, after a failed validation.
    ///
    /// Returns a document whose holder must be waited for, with that holder.
    async fn revalidate(
        self: &Arc<Self>,
        seen: BTreeMap<Key, View>,
        reads: &mut BTreeMap<Key, ReadEntry>,
        requester: Requester,
    ) -> Result<Option<(Key, AttemptId)>, AttemptError> {
        let engine = &self.engine;
        let mut locks = Vec::new();
        let mut holders = BTreeMap::new();
        for (key, view) in seen {
            let Some(read) = reads.get_mut(&key) else { continue };
            match validity(&engine.context.rules, &read.observed, &view, Some(self.tid)) {
                Validity::Valid => drop(reads.remove(&key)),
                Validity::Held(_)
                    if requester == Requester::NonPreempting
                        && !engine.context.rules.decides(Rule::ReadOnlyWaits) =>
                {
                    reads.remove(&key);
                }
                Validity::Held(holder) => {
                    // The lock has to be checked again, even if another attempt held the document
                    // at first.
                    read.observed.holder = Some(holder);
                    holders.insert(key.clone(), holder);
                    locks.push(Lock { key, view });
                }
                Validity::Changed => return Err(AttemptError::Retry(RetryReason::Changed(key))),
            }
        }
        let met = engine.recovery.resolve_locks(requester, locks.clone(), &self.deadline).await?;
        locks.retain(|lock| met.get(&lock.key) == Some(&Resolution::Void));
        if requester == Requester::NonPreempting {
            // A blocked index keeps its locks, and its documents can be read.
            let current = engine.unlocker.unlock_current(&locks).await?;
            for Lock { key, view } in locks.iter().filter(|lock| current.contains(&lock.key)) {
                let is_same =
                    |read: &ReadEntry| read.observed.same_logical_version(&Observed::of(view));
                if reads.get(key).is_some_and(is_same) {
                    reads.remove(key);
                }
            }
        } else if !locks.is_empty() {
            // The wounding attempt takes the locks. Otherwise the next attempt of the wounded
            // transaction would lock the documents again before the next read.
            let taken = locks.into_iter().map(|Lock { key, .. }| (key.clone(), reads.remove(&key)));
            Box::pin(self.acquire(taken.collect(), Vec::new(), &CancellationToken::new())).await?;
        }
        let busy =
            met.into_iter().find_map(|(key, met)| (met == Resolution::Blocked).then_some(key));
        Ok(busy.and_then(|key| holders.remove_entry(&key)))
    }
}
