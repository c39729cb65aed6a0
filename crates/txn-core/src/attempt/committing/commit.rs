//! The commit task: from `commit` to the end of the attempt.
//!
//! A tracked task runs the steps of the commit and the apply after them.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use tokio::sync::oneshot;

use crate::attempt::Attempt;
use crate::attempt::committing::after_commit::{complete, refresh_if_asked};
use crate::attempt::committing::commit_outcome::{CommitOutcome, CommittedRecord};
use crate::attempt::committing::commit_steps::commit_inner;
use crate::attempt::committing::rollback::{Why, leave_to_others, release};
use crate::attempt::committing::single::commit_single;
use crate::attempt::receipt::Receipt;
use crate::attempt::state::{CommitKind, Stage};
use crate::config::WaitFor;
use crate::engine::apply::single_write::unknown;
use crate::engine::attempt_error::AttemptError;
use crate::error::{Error, ErrorKind};
use crate::event::AbortReason;
use txn_protocol::record::Op;

/// Commits in a tracked task, which survives a dropped caller.
pub(in crate::attempt) async fn commit(attempt: &Arc<Attempt>) -> Result<Receipt, AttemptError> {
    if !attempt.progress.conclude() {
        return Err(attempt.over());
    }
    let (reply_to, reply) = oneshot::channel();
    let this = attempt.clone();
    attempt.engine.context.lifecycle.spawn(async move {
        let mut unended = Unended(Some(this.clone()));
        let run = AssertUnwindSafe(run_commit(&this, reply_to));
        if run.catch_unwind().await.is_err() {
            give_up(&this).await;
        }
        unended.0 = None;
    });
    match attempt.by_deadline(async { Ok(reply.await) }).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => cut_short(
            attempt,
            "the task of its commit panicked, or the runtime of that task has ended",
        ),
        Err(_) => cut_short(attempt, "the store did not answer before the deadline"),
    }
}

/// Returns the answer for a caller that cannot wait for the commit.
///
/// A commit that was not sent yet will never be sent. An acknowledged commit is reported as
/// committed and not yet applied.
fn cut_short(attempt: &Attempt, why: &str) -> Result<Receipt, AttemptError> {
    if attempt.progress.close() {
        attempt.handle.cancel();
        return Err(Error::unavailable(why).into());
    }
    let single = || attempt.working.lock().writes.keys().next().cloned();
    match attempt.progress.stage() {
        Stage::Committed(receipt) => Ok(receipt),
        Stage::Sent(CommitKind::Single) | Stage::Released(Some(CommitKind::Single))
            if let Some(key) = single() =>
        {
            attempt.note_unknown();
            Err(unknown(&key, &Error::unavailable(why)))
        }
        _ => Err(attempt.in_doubt(Error::unavailable(why).into())),
    }
}

/// Ends an attempt whose commit panicked.
///
/// A commit that may have been sent is left to other transactions.
async fn give_up(attempt: &Arc<Attempt>) {
    tracing::error!(tid = %attempt.tid, "a task of the engine panicked");
    if attempt.progress.close() {
        let why = Why::ended(AbortReason::Failed, "a task of the engine panicked");
        return release(attempt, why).await;
    }
    leave_to_others(attempt);
}

async fn run_commit(
    attempt: &Arc<Attempt>,
    reply_to: oneshot::Sender<Result<Receipt, AttemptError>>,
) {
    let receipt =
        |tid, commit_version, applied| Receipt { applied, ..attempt.receipt(tid, commit_version) };
    // The commit continues even if the caller is gone, because the record has the outcome.
    let say = |result| drop(reply_to.send(result));
    match commit_inner(attempt).await {
        Ok(CommitOutcome::Nothing) => {
            let why = Why::ended(AbortReason::NothingToWrite, "it only read");
            attempt.release_by_deadline(why).await;
            say(Ok(receipt(None, None, true)));
        }
        Ok(CommitOutcome::Single(single)) => {
            let result = commit_single(attempt, &single).await;
            attempt.engine.live_attempts.forget(attempt.tid);
            attempt.progress.release();
            say(match result {
                Ok(commit) => {
                    refresh_if_asked(attempt, [&single.key]).await;
                    Ok(receipt(None, Some(commit), true))
                }
                Err(error) => {
                    if matches!(&error, AttemptError::Fail(e) if e.kind() == ErrorKind::Unknown) {
                        attempt.note_unknown();
                    }
                    Err(error)
                }
            });
        }
        Ok(CommitOutcome::CommittedRecord(committed)) => {
            let commit = committed.record.commit_version;
            remember(attempt, &committed);
            attempt.hot.reservations.return_permit();
            if attempt.options.wait_for == WaitFor::Commit {
                say(Ok(receipt(Some(attempt.tid), commit, false)));
                complete(attempt, *committed, true).await;
            } else {
                let applied = complete(attempt, *committed, false).await;
                say(Ok(receipt(Some(attempt.tid), commit, applied)));
            }
        }
        Err(AttemptError::Fail(error)) if error.kind() == ErrorKind::Unknown => {
            leave_to_others(attempt);
            say(Err(AttemptError::Fail(error.in_transaction(attempt.tid))));
        }
        Err(error) => {
            attempt.release_by_deadline(Why::from(&error)).await;
            say(Err(error));
        }
    }
    attempt.hot.reservations.free_all();
}

/// Caches the committed contents, which are still in the record only.
fn remember(attempt: &Attempt, committed: &CommittedRecord) {
    let record = &committed.record;
    let Some(commit) = record.commit_version else { return };
    let now = attempt.engine.context.now();
    for (participant, image) in record.participants.iter().zip(&record.images) {
        let key = participant.key();
        match (participant.op, image) {
            (Op::Write | Op::Insert, Some(image)) => {
                attempt.engine.hot.cache.committed(&key, record.tid, commit, image.clone(), now);
            }
            (Op::Delete, _) => attempt.engine.hot.cache.forget(&key),
            (Op::Read, _) | (Op::Write | Op::Insert, None) => {}
        }
    }
}

/// The attempt of a commit task that has not ended.
///
/// If the task is dropped with its runtime, the guard releases the locks, or leaves them to other
/// transactions.
struct Unended(Option<Arc<Attempt>>);

impl Drop for Unended {
    fn drop(&mut self) {
        let Some(attempt) = self.0.take() else { return };
        if !attempt.progress.close() {
            return leave_to_others(&attempt);
        }
        let engine = attempt.engine.clone();
        let why = Why::ended(AbortReason::Failed, "its runtime has ended");
        let release = async move { release(&attempt, why).await };
        engine.context.lifecycle.spawn_from_anywhere(release);
    }
}
