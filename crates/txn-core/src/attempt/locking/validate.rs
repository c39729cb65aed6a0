//! Validation: whether documents that were only read are still current.
//!
//! Validation follows the acknowledgement of every lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::attempt::locking::lock::acquire;
use crate::attempt::locking::verify::verify_locks;
use crate::attempt::locking::waiting::wait_with_patience;
use crate::attempt::{Attempt, ReadEntry};
use crate::clock::Backoff;
use crate::config::ReadMode;
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::holders::foreign_lock::ForeignLock;
use crate::engine::recovery::roll_forward::Resolution;
use crate::engine::store::store_access::ReadPreference;
use crate::engine::wait_reason::WaitReason;
use crate::error::Error;
use txn_protocol::document::View;
use txn_protocol::ids::AttemptId;
use txn_protocol::machines::attempt::{locks_absences, validated_first};
use txn_protocol::rule::Rule;
use txn_protocol::rules::conflict::Requester;
use txn_protocol::rules::validate::{Observed, Validity, validity};
use txn_store::{Key, Outcome, Write, WriteOp};

/// A transaction without locks waits this often before a retry.
const MOST_WAITS: u32 = 16;

/// Validates the reads of a closure that failed.
///
/// The error of the closure may rest on reads of different states.
pub(in crate::attempt) async fn examine(attempt: &Arc<Attempt>) -> Result<(), AttemptError> {
    let this = attempt.clone();
    let examined = async move {
        let _one_at_a_time = this.locking.lock().await;
        if !this.progress.is_working() {
            return Err(this.over());
        }
        validate_all(&this).await
    };
    attempt.spawn_tracked(examined).await
}

/// Validates all reads as a read-only transaction does.
///
/// The held locks are verified, too. The caller holds `attempt.locking`.
pub(in crate::attempt) async fn validate_all(attempt: &Arc<Attempt>) -> Result<(), AttemptError> {
    let reads = attempt.working.lock().reads.clone();
    let mut only_read: BTreeMap<Key, ReadEntry> = {
        let locks = attempt.locks.lock();
        reads.into_iter().filter(|(key, _)| !locks.held.contains_key(key)).collect()
    };
    let wanted = take_reads_to_lock(attempt, &mut only_read, false);
    if !wanted.is_empty() {
        acquire(attempt, wanted, Vec::new(), &CancellationToken::new()).await?;
    }
    validate(attempt, only_read).await?;
    verify_locks(attempt).await
}

/// Takes out the reads that must be locked instead of validated.
pub(in crate::attempt) fn take_reads_to_lock(
    attempt: &Attempt,
    only_read: &mut BTreeMap<Key, ReadEntry>,
    has_writes: bool,
) -> BTreeMap<Key, Option<ReadEntry>> {
    let absent = only_read.values().filter(|read| read.observed.image.is_none()).count();
    let lock_absent =
        locks_absences(&attempt.engine.context.rules, has_writes, only_read.len(), absent);
    let lock = |read: &ReadEntry| {
        attempt.options.read_mode == ReadMode::Lock
            || (lock_absent && read.observed.image.is_none())
    };
    let taken = only_read.extract_if(.., |_, read| lock(read));
    taken.map(|(key, read)| (key, Some(read))).collect()
}

/// Validates reads.
///
/// A transaction that holds locks resolves conflicts by age, and takes over the locks of
/// wounded transactions. A transaction without locks wounds no other transaction. The caller
/// holds `attempt.locking`, if the caller holds locks.
#[tracing::instrument(
    name = "validate",
    parent = &attempt.span,
    level = "debug",
    skip_all,
    fields(tid = %attempt.tid, attempt = attempt.tid.attempt())
)]
pub(in crate::attempt) async fn validate(
    attempt: &Arc<Attempt>,
    mut reads: BTreeMap<Key, ReadEntry>,
) -> Result<(), AttemptError> {
    let engine = &attempt.engine;
    let locks_nothing = attempt.locks.lock().held.is_empty();
    let requester =
        if locks_nothing { Requester::NonPreempting } else { Requester::Locking(attempt.tid) };
    if !engine.context.rules.decides(Rule::ValidateReads) {
        return Ok(());
    }
    let mut backoff = engine.context.backoff();
    let absent = |read: &ReadEntry| read.observed.image.is_none();
    let all = reads.values().all(absent);
    let first =
        |_: &Key, read: &mut ReadEntry| validated_first(&engine.context.rules, absent(read), all);
    // Several absences are locked, not validated.
    let alone = reads.extract_if(.., first).collect();
    validate_round(attempt, alone, requester, &mut backoff).await?;
    validate_round(attempt, reads, requester, &mut backoff).await
}

async fn validate_round(
    attempt: &Arc<Attempt>,
    mut reads: BTreeMap<Key, ReadEntry>,
    requester: Requester,
    backoff: &mut Backoff,
) -> Result<(), AttemptError> {
    let engine = &attempt.engine;
    let (mut waits, mut since) = (0, None);
    loop {
        // Members may have left meanwhile.
        reads.retain(|key, _| !attempt.hot.members.is_evicted(key));
        if reads.is_empty() {
            return Ok(());
        }
        let Verified { doubtful, mut reason } = verify_reads(attempt, &mut reads).await?;
        let views = engine
            .store
            .read_documents(&doubtful, ReadPreference::Primary, &attempt.deadline)
            .await?;
        let seen = doubtful.into_iter().zip(views).collect();
        if let Some((key, holder)) = revalidate(attempt, seen, &mut reads, requester).await? {
            waits += 1;
            // Other transactions of this process wait for the documents of a group, so the
            // group starts again early.
            let is_awaited = attempt.hot.reservations.has_documents();
            if requester == Requester::NonPreempting && (waits > MOST_WAITS || is_awaited) {
                return Err(AttemptError::Retry(RetryReason::Waited(key)));
            }
            attempt.refuse_to_wait_for_oneself(&key, holder)?;
            wait_with_patience(attempt, &key, &mut since)?;
            let label = engine.contention.label_of(holder);
            reason = Some(WaitReason::Others { key, holder, label });
        }
        let changing = reads.keys().next().cloned().map(WaitReason::Changing);
        if let Some(changing) = changing {
            engine.context.pause(&attempt.deadline, backoff, reason.unwrap_or(changing)).await?;
        }
    }
}

/// The result of a bulk of verifications.
struct Verified {
    /// The documents that changed, or that another transaction held at their read.
    doubtful: Vec<Key>,
    /// Why the store did not verify the rest.
    reason: Option<WaitReason>,
}

/// Verifies the versions of reads, in one bulk. Current reads leave `reads`.
async fn verify_reads(
    attempt: &Attempt,
    reads: &mut BTreeMap<Key, ReadEntry>,
) -> Result<Verified, AttemptError> {
    let engine = &attempt.engine;
    let is_held = |read: &ReadEntry| read.observed.holder.is_some();
    let verifies: Vec<Write> = reads
        .iter()
        .filter(|(_, read)| !is_held(read))
        .map(|(key, read)| Write::new(key.clone(), WriteOp::Verify(read.observed.version)))
        .collect();
    let doubtful = reads.iter().filter(|(_, read)| is_held(read)).map(|(key, _)| key.clone());
    let (mut doubtful, mut reason) = (doubtful.collect::<Vec<_>>(), None);
    if verifies.is_empty() {
        return Ok(Verified { doubtful, reason });
    }
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
            Outcome::Rejected(why) | Outcome::RejectedInDoubt(why) | Outcome::Unknown(why) => {
                reason = Some(WaitReason::Store(why));
            }
            refused => {
                let error = Error::from_refused(&refused, &write.key, "validate a read");
                return Err(error.in_transaction(attempt.tid).into());
            }
        }
    }
    Ok(Verified { doubtful, reason })
}

/// Reads the documents again, after a failed validation.
///
/// Returns a document whose holder must be waited for, with that holder.
async fn revalidate(
    attempt: &Arc<Attempt>,
    seen: BTreeMap<Key, View>,
    reads: &mut BTreeMap<Key, ReadEntry>,
    requester: Requester,
) -> Result<Option<(Key, AttemptId)>, AttemptError> {
    let engine = &attempt.engine;
    let mut locks = Vec::new();
    let mut holders = BTreeMap::new();
    for (key, view) in seen {
        let Some(read) = reads.get_mut(&key) else { continue };
        match validity(&engine.context.rules, &read.observed, &view, Some(attempt.tid)) {
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
                locks.push(ForeignLock { key, view });
            }
            Validity::Changed => return Err(AttemptError::Retry(RetryReason::Changed(key))),
        }
    }
    let resolved =
        engine.recovery.resolve_locks(requester, locks.clone(), &attempt.deadline).await?;
    locks.retain(|lock| resolved.get(&lock.key) == Some(&Resolution::Void));
    if requester == Requester::NonPreempting {
        // A blocked index keeps its locks, and its documents can be read.
        let current = engine.unlocker.unlock_current(&locks).await?;
        for ForeignLock { key, view } in locks.iter().filter(|lock| current.contains(&lock.key)) {
            let is_same =
                |read: &ReadEntry| read.observed.same_logical_version(&Observed::of(view));
            if reads.get(key).is_some_and(is_same) {
                reads.remove(key);
            }
        }
    } else if !locks.is_empty() {
        // The wounding attempt takes the locks. Otherwise the next attempt of the wounded
        // transaction would lock the documents again before the next read.
        let taken =
            locks.into_iter().map(|ForeignLock { key, .. }| (key.clone(), reads.remove(&key)));
        Box::pin(acquire(attempt, taken.collect(), Vec::new(), &CancellationToken::new())).await?;
    }
    let busy = resolved
        .into_iter()
        .find_map(|(key, resolved)| (resolved == Resolution::Blocked).then_some(key));
    Ok(busy.and_then(|key| holders.remove_entry(&key)))
}
