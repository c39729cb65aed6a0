//! The caller of a transaction that waits for a group.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::membership::{Certainty, SharedMembership};
use super::{Groups, QueuePosition, SLOW};
use crate::attempt::Receipt;
use crate::attempt::merging::serial_batch::SerialBatch;
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::error::{Error, ErrorKind};
use txn_protocol::ids::AttemptId;
use txn_store::Key;

/// The maximum delay of an answer after the deadline of the caller.
///
/// In this time the commit itself can report its outcome.
const OVERDUE: Duration = Duration::from_millis(200);

/// The longest wait of a read-only transaction for a group.
///
/// The queue spares such a transaction failed validations beside writers of this process. A writer
/// that is stuck, for example on a blocked index, may hold the queue up. Without a group the
/// transaction validates by itself, as in any other process.
pub(super) const LONGEST_WAIT_OF_READERS: Duration = Duration::from_secs(1);

/// A message to the caller of a waiting transaction.
pub(crate) enum CallerMessage {
    /// Run the closure again, on the batch so far.
    Rerun(Rerun),
    /// The transaction ended.
    Ended(Result<Receipt, AttemptError>),
}

/// A further run of a closure, for which a group waits.
///
/// A dropped value takes the transaction out of the group.
pub(crate) struct Rerun {
    pub(super) batch: Arc<Mutex<SerialBatch>>,
    pub(super) ran: oneshot::Sender<()>,
}

impl Rerun {
    pub(crate) fn batch(&self) -> Arc<Mutex<SerialBatch>> {
        self.batch.clone()
    }

    /// Reports the end of the run. Returns whether the group still waited.
    pub(crate) fn ran(self) -> bool {
        self.ran.send(()).is_ok()
    }
}

/// The caller of a transaction in the queue.
///
/// A dropped value leaves the queue. A merged transaction continues.
pub(crate) struct WaitingCaller {
    pub(super) groups: Arc<Groups>,
    pub(super) position: QueuePosition,
    pub(super) membership: SharedMembership,
    pub(super) replies: mpsc::UnboundedReceiver<CallerMessage>,
    /// The end of the whole transaction, on the monotonic clock.
    pub(super) ends_at: Duration,
    /// The time at which a read-only transaction leaves the queue.
    ///
    /// `None` for a transaction that writes, and after the closure was asked to run again.
    pub(super) leaves_at: Option<Duration>,
}

impl WaitingCaller {
    /// Waits for the next message. [`CallerMessage::Ended`] is the last one.
    pub(crate) async fn reply(&mut self) -> CallerMessage {
        let engine = self.groups.engine.clone();
        loop {
            tokio::select! {
                biased;
                reply = self.replies.recv() => {
                    // A further run may write, and the group may commit its writes.
                    self.leaves_at = None;
                    return reply.unwrap_or_else(|| CallerMessage::Ended(Err(self.left_alone())));
                }
                () = engine.context.config.clock.sleep(SLOW) => {
                    self.groups.start_groups_for(Some(self.position));
                    if let Some(error) = self.too_late() {
                        return CallerMessage::Ended(Err(error));
                    }
                    if self.leaves_the_queue() {
                        return CallerMessage::Ended(Err(AttemptError::Retry(RetryReason::LeftGroup)));
                    }
                }
            }
        }
    }

    /// Returns an error if the deadline of this transaction has passed.
    ///
    /// The other members of its group may have more time.
    fn too_late(&self) -> Option<AttemptError> {
        let now = self.groups.engine.context.now();
        if now < self.ends_at {
            return None;
        }
        match self.membership.leave(now >= self.ends_at + OVERDUE) {
            Certainty::Soon => None,
            Certainty::InDoubt(tid) => Some(in_doubt("it took longer than the deadline", tid)),
            Certainty::Out => {
                let document = self.groups.leave(self.position);
                Some(too_late(document.as_ref()).into())
            }
        }
    }

    /// Takes an overdue read-only transaction out of the queue.
    ///
    /// The transaction has waited too long. A group that has begun to merge the transaction keeps
    /// it.
    fn leaves_the_queue(&self) -> bool {
        let now = self.groups.engine.context.now();
        let leaves = self.leaves_at.is_some_and(|leaves_at| now >= leaves_at)
            && self.membership.leave_the_queue();
        if leaves {
            cov_mark::hit!(reader_leaves_the_queue);
            self.groups.leave(self.position);
        }
        leaves
    }

    /// Returns the error for a transaction whose group is gone.
    fn left_alone(&self) -> AttemptError {
        match self.membership.leave(true) {
            Certainty::InDoubt(tid) => in_doubt("the group of the transaction is gone", tid),
            Certainty::Out | Certainty::Soon => AttemptError::Retry(RetryReason::LeftGroup),
        }
    }
}

impl Drop for WaitingCaller {
    fn drop(&mut self) {
        self.groups.leave(self.position);
    }
}

fn in_doubt(why: &str, tid: Option<AttemptId>) -> AttemptError {
    let unknown =
        |ask| Error::new(ErrorKind::Unknown, format!("{why}, and may be committed: {ask}"));
    match tid {
        Some(tid) => unknown("ask for its outcome by its tid before running it again")
            .in_transaction(tid)
            .into(),
        None => unknown("look at its document before running it again").into(),
    }
}

fn too_late(key: Option<&Key>) -> Error {
    let message = "timed out waiting for another transaction of this process";
    let error = Error::new(ErrorKind::Conflict, message);
    match key {
        Some(key) => error.at(key),
        None => error,
    }
}
