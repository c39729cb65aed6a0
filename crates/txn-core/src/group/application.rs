//! A transaction that waits to be composed, as its caller sees it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::standing::{Certainty, SharedStanding};
use super::{Groups, Place, SLOW};
use crate::attempt::Receipt;
use crate::attempt::composition::Composition;
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::error::{Error, ErrorKind};
use crate::store::Key;
use txn_protocol::ids::AttemptId;

/// How much later than its deadline a caller is answered at the latest: the commit itself, which knows more, is given the time to
/// say what became of it.
const OVERDUE: Duration = Duration::from_millis(200);

/// What an applicant is told.
pub(crate) enum Told {
    /// Run the closure again, on what is composed so far.
    RunAgain(Rerun),
    /// It ended.
    Ended(Result<Receipt, AttemptError>),
}

/// A further run of a closure, for which a group waits a moment. Dropped, the transaction is out of the group.
pub(crate) struct Rerun {
    pub(super) basis: Arc<Mutex<Composition>>,
    pub(super) ran: oneshot::Sender<()>,
}

impl Rerun {
    pub(crate) fn basis(&self) -> Arc<Mutex<Composition>> {
        self.basis.clone()
    }

    /// It ran, and may be composed. Returns whether the group still waited.
    pub(crate) fn ran(self) -> bool {
        self.ran.send(()).is_ok()
    }
}

/// The place of one transaction in the queue, for whoever waits for it. Dropped, it leaves the queue; what is composed already goes
/// on.
pub(crate) struct Application {
    pub(super) groups: Arc<Groups>,
    pub(super) place: Place,
    pub(super) standing: SharedStanding,
    pub(super) told: mpsc::UnboundedReceiver<Told>,
    /// Of the whole transaction, on the monotonic clock.
    pub(super) ends_at: Duration,
}

impl Application {
    /// What comes next. After [`Told::Ended`] nothing does.
    pub(crate) async fn told(&mut self) -> Told {
        let engine = self.groups.engine.clone();
        loop {
            tokio::select! {
                biased;
                told = self.told.recv() => {
                    return told.unwrap_or_else(|| Told::Ended(Err(self.left_alone())));
                }
                () = engine.config.clock.sleep(SLOW) => {
                    self.groups.call_if_free(Some(self.place));
                    if let Some(error) = self.too_late() {
                        return Told::Ended(Err(error));
                    }
                }
            }
        }
    }

    /// Whether its own time is over; the others of its group may have more.
    fn too_late(&self) -> Option<AttemptError> {
        let now = self.groups.engine.now();
        if now < self.ends_at {
            return None;
        }
        match self.standing.leave(now >= self.ends_at + OVERDUE) {
            Certainty::Soon => None,
            Certainty::InDoubt(tid) => Some(in_doubt("it took longer than the deadline", tid)),
            Certainty::Out => {
                let uses = self.groups.leave(self.place);
                Some(too_late(uses.as_ref().and_then(|uses| uses.keys().next())).into())
            }
        }
    }

    /// Whoever composed it is gone.
    fn left_alone(&self) -> AttemptError {
        match self.standing.leave(true) {
            Certainty::InDoubt(tid) => in_doubt("what carried it is gone", tid),
            Certainty::Out | Certainty::Soon => AttemptError::Retry(RetryReason::LeftGroup),
        }
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.groups.leave(self.place);
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
    let message = "other transactions of this process had it until the deadline";
    let error = Error::new(ErrorKind::Conflict, message);
    match key {
        Some(key) => error.at(key),
        None => error,
    }
}
