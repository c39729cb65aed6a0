//! Verification: whether all locks were held at one moment.

use std::collections::BTreeSet;

use crate::attempt::{Attempt, HeldLock};
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::store::store_access::ReadPreference;
use crate::engine::wait_reason::WaitReason;
use crate::error::Error;
use txn_protocol::document::View;
use txn_protocol::rule::Rule;
use txn_store::{Key, Outcome, Write, WriteOp};

/// Verifies that all locks were held at the same time.
///
/// A transaction that only locked reads has no commit that a wound would compete with. A lock
/// that is still held has been held since before the last lock was taken.
pub(in crate::attempt) async fn verify_locks(attempt: &Attempt) -> Result<(), AttemptError> {
    let engine = &attempt.engine;
    if !engine.context.rules.decides(Rule::VerifyReadLocks) {
        return Ok(());
    }
    let mut open: BTreeSet<Key> = attempt.locks.lock().held.keys().cloned().collect();
    let mut backoff = engine.context.backoff();
    while !open.is_empty() {
        let verifies: Vec<Write> = {
            let locks = attempt.locks.lock();
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
                Outcome::Rejected(why) | Outcome::RejectedInDoubt(why) | Outcome::Unknown(why) => {
                    reason = Some(WaitReason::Store(why));
                }
                refused => {
                    let error = Error::from_refused(&refused, &write.key, "verify a lock");
                    return Err(error.in_transaction(attempt.tid).into());
                }
            }
        }
        let views =
            engine.store.read_documents(&moved, ReadPreference::Primary, &attempt.deadline).await?;
        for (key, view) in moved.iter().zip(views) {
            find_lock_again(attempt, key, &view)?;
            reason.get_or_insert_with(|| WaitReason::Changing(key.clone()));
        }
        if let Some(reason) = reason {
            engine.context.pause(&attempt.deadline, &mut backoff, reason).await?;
        }
    }
    Ok(())
}

/// Finds a held lock again after a touch by another process.
///
/// The lock is still the lock that was taken: its write was conditional on a version, so it
/// landed once. A placeholder has no such condition, and counts at its version only.
fn find_lock_again(attempt: &Attempt, key: &Key, view: &View) -> Result<(), AttemptError> {
    let mut locks = attempt.locks.lock();
    let Some(held) = locks.held.get_mut(key) else { return Ok(()) };
    match view {
        View::Present { version, stored, .. }
            if !held.before.absent
                && stored.lock == Some(attempt.tid)
                && stored.commit_version == held.before.commit_version
                && stored.image == held.before.image =>
        {
            held.version = *version;
            Ok(())
        }
        _ => Err(AttemptError::Retry(RetryReason::Wounded)),
    }
}
