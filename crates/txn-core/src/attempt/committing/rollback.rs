//! The end of an attempt without a commit: releases its locks.
//!
//! Nothing else has to be undone, because a locked document has committed content only.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::attempt::Attempt;
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::deadline::Deadline;
use crate::engine::store::store_access::ReadPreference;
use crate::error::Error;
use crate::event::{AbortReason, Event};
use txn_store::{Key, Outcome, Write};

/// Why an attempt ends without a commit.
#[derive(Debug)]
pub(crate) struct Why {
    reason: AbortReason,
    /// The reason, for logs and the record.
    text: String,
    /// Whether another attempt may follow.
    retried: bool,
}

impl Why {
    /// Another attempt may follow.
    pub(crate) fn retried(reason: &RetryReason) -> Self {
        Self { reason: reason.into(), text: reason.to_string(), retried: true }
    }

    /// No attempt follows.
    pub(crate) fn ended(reason: AbortReason, text: impl Into<String>) -> Self {
        Self { reason, text: text.into(), retried: false }
    }

    /// The store or the engine refused the transaction.
    pub(crate) fn failed(error: &Error) -> Self {
        Self::ended(AbortReason::Failed, error.to_string())
    }
}

impl From<&AttemptError> for Why {
    fn from(error: &AttemptError) -> Self {
        match error {
            AttemptError::Retry(reason) => Self::retried(reason),
            AttemptError::Fail(error) => Self::failed(error),
        }
    }
}

/// Releases the locks, once.
///
/// The caller has sent no commit of this attempt, or its `aborted` record is acknowledged.
/// Locks that cannot be released now are left to other transactions.
#[tracing::instrument(
    name = "release",
    parent = &attempt.span,
    level = "debug",
    skip_all,
    fields(tid = %attempt.tid, attempt = attempt.tid.attempt())
)]
pub(in crate::attempt) async fn release(attempt: &Arc<Attempt>, why: Why) {
    if !attempt.progress.release() {
        return;
    }
    // Even after a panic of the store, no task of this process waits for the attempt any more.
    let _forget = Forget(attempt);
    // A lock operation of this attempt that still runs is cancelled.
    attempt.handle.cancel();
    let _one_at_a_time = attempt.locking.lock().await;
    attempt.heart.cancel();
    let engine = &attempt.engine;
    let (held, uncertain) = {
        let mut locks = attempt.locks.lock();
        (std::mem::take(&mut locks.held), std::mem::take(&mut locks.uncertain))
    };
    let has_record = {
        let mut writer = attempt.record_writer.lock().await;
        let may_have_record = writer.may_have_record();
        writer.seal();
        may_have_record
    };
    let deadline = engine.context.deadline(engine.context.config.lease_of(attempt.tid.attempt()));
    if has_record || !uncertain.is_empty() {
        abort_record(attempt, &why.text, &deadline).await;
    }
    let voids: Vec<Write> = held.iter().map(|(key, lock)| lock.void(key)).collect();
    let mut left: BTreeSet<Key> = uncertain.clone();
    if !voids.is_empty() {
        let outcomes = engine.store.write_all(&voids).await;
        for (write, outcome) in voids.iter().zip(outcomes) {
            if !matches!(outcome, Outcome::Applied(_)) {
                left.insert(write.key.clone());
            }
        }
    }
    let left: Vec<Key> = left.into_iter().collect();
    if let Ok(views) = engine.store.read_documents(&left, ReadPreference::Primary, &deadline).await
    {
        for (key, view) in left.iter().zip(&views) {
            if view.holder() == Some(attempt.tid)
                && let Err(error) = engine.unlocker.unlock(key, view, attempt.tid).await
            {
                tracing::error!(%error, "a lock was left for an operator");
            }
        }
    }
    engine.live_attempts.forget(attempt.tid);
    engine.hot.lock_queues.release(held.keys().chain(&uncertain));
    let Why { reason, text: why, retried } = why;
    if !(held.is_empty() && uncertain.is_empty()) || retried {
        let (tid, label) = (attempt.tid, attempt.options.label.clone());
        engine.context.emit(&Event::Aborted { tid, label, reason, why, retried });
    }
}

/// Writes the `aborted` record. This record spares other processes the wait for the lease.
///
/// A lock may land late, and a heartbeat shows a live attempt.
async fn abort_record(attempt: &Attempt, why: &str, deadline: &Deadline) {
    let engine = &attempt.engine;
    let found = engine.table.record_of(attempt.tid, ReadPreference::Primary, deadline).await;
    if let Ok(found) = found
        && found.record.as_ref().is_none_or(|record| !record.state.is_committed())
        && let Err(error) =
            Box::pin(engine.verdicts.decide(attempt.tid, found, why, deadline)).await
    {
        tracing::warn!(tid = %attempt.tid, why = %error.into_error(), "the aborted record could not be written");
    }
}

/// Leaves the locks to other transactions, because the commit may land.
///
/// A transaction that finds the locks recovers the attempt.
pub(in crate::attempt) fn leave_to_others(attempt: &Attempt) {
    attempt.engine.context.lifecycle.leave_over();
    attempt.progress.release();
    attempt.heart.cancel();
    attempt.engine.live_attempts.forget(attempt.tid);
    attempt.hot.reservations.free_all();
    attempt.hot.under_way.lock().take();
    let locks = attempt.locks.lock();
    attempt.engine.hot.lock_queues.release(locks.held.keys().chain(&locks.uncertain));
}

/// Forgets an attempt when it is dropped.
struct Forget<'a>(&'a Attempt);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.engine.live_attempts.forget(self.0.tid);
        self.0.hot.under_way.lock().take();
    }
}
