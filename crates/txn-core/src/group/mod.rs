//! Groups: transactions of this process that are composed into one. To every other process a group is a transaction that is a little
//! larger.
//!
//! Whoever's closure has ended queues here under the documents that it used. A group is formed, oldest first, of those
//! whose documents are in no group under way; whoever is blocked blocks its documents for those behind. Groups go in a few turns at a
//! time, and no timer delays them: on an idle system each transaction has its turn at once, alone, and commits as it always did.

mod compose;
mod queue;
mod uses;

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::attempt::composition::Composition;
use crate::attempt::seat::Guard;
use crate::attempt::{Attempt, Receipt};
use crate::engine::Engine;
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::error::{Error, ErrorKind};
use crate::store::Key;
use txn_protocol::tid::{MAX_ATTEMPT, Tid};

use queue::{Applicant, Place, Queue};
use uses::Uses;

/// How much later than its deadline a caller is answered at the latest: the commit itself, which knows more, is given the time to
/// say what became of it.
const OVERDUE: Duration = Duration::from_millis(200);

/// How long a turn counts. One that takes longer, for the store is slow in a part, leaves its place to others.
const SLOW: Duration = Duration::from_millis(100);

/// The groups of a domain in this process.
#[derive(Debug)]
pub(crate) struct Groups {
    engine: Arc<Engine>,
    queue: Mutex<Queue>,
}

/// The numbers of the attempts of one transaction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attempts(Arc<AtomicU16>);

impl Attempts {
    /// The number of the next attempt.
    pub(crate) fn next(&self) -> u16 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u16 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What an applicant is told.
pub(crate) enum Told {
    /// Run the closure again, on what is composed so far.
    RunAgain(Rerun),
    /// What was composed is about to be committed, by this attempt, if a record will tell its outcome.
    Joined(Option<Tid>),
    /// It is not, and waits again.
    Queued,
    /// It ended.
    Ended(Result<Receipt, AttemptError>),
}

/// A further run of a closure, for which a group waits a moment. Dropped, the transaction is out of the group.
pub(crate) struct Rerun {
    basis: Arc<Mutex<Composition>>,
    ran: oneshot::Sender<()>,
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
    groups: Arc<Groups>,
    place: Place,
    told: mpsc::UnboundedReceiver<Told>,
    /// The attempt that stands for it, once there is one.
    joined: Option<Option<Tid>>,
    /// Of the whole transaction, on the monotonic clock.
    ends_at: Duration,
}

impl Application {
    /// What comes next. After [`Told::Ended`] nothing does.
    pub(crate) async fn told(&mut self) -> Told {
        let engine = self.groups.engine.clone();
        loop {
            let told = tokio::select! {
                biased;
                told = self.told.recv() => told,
                () = engine.config.clock.sleep(SLOW) => {
                    self.groups.call_if_free(Some(self.place));
                    match self.too_late() {
                        Some(error) => return Told::Ended(Err(error)),
                        None => continue,
                    }
                }
            };
            return match told {
                Some(Told::Joined(tid)) => {
                    self.joined = Some(tid);
                    continue;
                }
                Some(Told::Queued) => {
                    self.joined = None;
                    continue;
                }
                Some(told) => told,
                None => Told::Ended(Err(self.cut_short("what carried it is gone"))),
            };
        }
    }

    /// Whether its own time is over; the others of its group may have more.
    fn too_late(&self) -> Option<AttemptError> {
        let now = self.groups.engine.now();
        if now < self.ends_at {
            return None;
        }
        if let Some(uses) = self.groups.leave(self.place) {
            return Some(too_late(uses.keys().next()).into());
        }
        // It is being composed, or may still be answered in time.
        let waits = self.joined.is_none() || now < self.ends_at + OVERDUE;
        (!waits).then(|| self.cut_short("it took longer than the deadline"))
    }

    fn cut_short(&self, why: &str) -> AttemptError {
        let unknown =
            |ask| Error::new(ErrorKind::Unknown, format!("{why}, and may be committed: {ask}"));
        match self.joined {
            None => AttemptError::Retry(RetryReason::LeftGroup),
            Some(Some(tid)) => {
                let ask = "ask for its outcome by its tid before running it again";
                unknown(ask).in_transaction(tid).into()
            }
            Some(None) => unknown("look at its document before running it again").into(),
        }
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.groups.leave(self.place);
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

impl Groups {
    /// The groups of a domain, if it composes transactions.
    pub(crate) fn of(engine: &Arc<Engine>) -> Option<Arc<Self>> {
        let queue = Mutex::default();
        engine.groups.then(|| Arc::new(Self { engine: engine.clone(), queue }))
    }

    /// Queues an attempt whose closure has ended, if it may be composed with others. `insists`: others overtook it before.
    pub(crate) fn apply(
        self: &Arc<Self>,
        attempt: &Arc<Attempt>,
        attempts: &Attempts,
        insists: bool,
    ) -> Option<Application> {
        // The attempts of its groups have numbers of their own.
        if attempts.count() > MAX_ATTEMPT / 2 {
            return None;
        }
        let uses = Self::uses_of(attempt)?;
        let runtime = Handle::try_current().ok()?;
        let (tell, told) = mpsc::unbounded_channel();
        let applicant = Applicant {
            attempt: attempt.clone(),
            attempts: attempts.clone(),
            uses,
            most: usize::MAX,
            insists,
            returns: 0,
            tell,
            runtime,
        };
        let ends_at = attempt.ends_at();
        let place = self.queue.lock().enter(applicant);
        self.call_if_free(Some(place));
        Some(Application { groups: self.clone(), place, told, joined: None, ends_at })
    }

    /// Has those composed whose turn it is.
    pub(crate) fn call(self: &Arc<Self>) {
        self.call_if_free(None);
    }

    fn call_if_free(self: &Arc<Self>, only: Option<Place>) {
        let now = self.engine.now();
        let called = self.queue.lock().call(now, only);
        if let Some((number, runtime)) = called {
            let turn = Turn(Arc::new(TurnTaken { groups: self.clone(), number }));
            self.engine.lifecycle.spawn_on(self.clone().compose_next(turn), &runtime);
        }
    }

    /// Takes an applicant out of the queue, if it is still there. Returns its documents then.
    fn leave(&self, place: Place) -> Option<Uses> {
        self.queue.lock().leave(place).map(|applicant| applicant.uses)
    }

    /// The documents of an attempt, if it may be composed with others.
    fn uses_of(attempt: &Attempt) -> Option<Uses> {
        let (read, written) = attempt.documents_to_join()?;
        Some(Uses { read, written })
    }
}

/// One of the few turns; the last clone gives it back.
#[derive(Clone, Debug)]
struct Turn(Arc<TurnTaken>);

impl Turn {
    fn number(&self) -> u64 {
        self.0.number
    }
}

#[derive(Debug)]
struct TurnTaken {
    groups: Arc<Groups>,
    number: u64,
}

impl Drop for TurnTaken {
    fn drop(&mut self) {
        if self.groups.queue.lock().end_turn(self.number) {
            self.groups.call();
        }
    }
}

/// Documents that a group uses.
#[derive(Debug)]
struct Documents {
    groups: Arc<Groups>,
    uses: Vec<Uses>,
}

impl Guard for Documents {}

impl Drop for Documents {
    fn drop(&mut self) {
        {
            let mut queue = self.groups.queue.lock();
            self.uses.iter().for_each(|uses| queue.free(uses));
        }
        self.groups.call();
    }
}

/// What goes with a turn: the documents that are only read.
#[derive(Debug)]
struct TurnWithReads {
    _reads: Documents,
    _turn: Turn,
}

impl Guard for TurnWithReads {}
