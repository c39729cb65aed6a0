//! Groups: transactions of this process that are composed into one. To every other process a group is a transaction that is a little
//! larger.
//!
//! Whoever's closure has ended queues here under the documents that it used. A group is formed, oldest first, of those
//! whose documents are in no group under way; whoever is blocked blocks its documents for those behind. Groups go in a few turns at a
//! time, and no timer delays them: on an idle system each transaction has its turn at once, alone, and commits as it always did.

mod application;
mod compose;
mod queue;
mod standing;
mod uses;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::attempt::Attempt;
use crate::attempt::seat::{Guard, Places};
use crate::engine::Engine;
use crate::engine::hot::MemberQueue;
use crate::store::Key;
use txn_protocol::ids::{Age, MAX_ATTEMPT};

use queue::{Applicant, Queue};
use standing::SharedStanding;
use uses::Uses;

pub(crate) use application::{Application, Told};

/// How long a turn counts. One that takes longer, for the store is slow in a part, leaves its place to others.
const SLOW: Duration = Duration::from_millis(100);

/// A place in the queue: by age, then by arrival.
type Place = (Age, u64);

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

impl Groups {
    /// The groups of a domain, if it composes transactions.
    pub(crate) fn of(engine: &Arc<Engine>) -> Option<Arc<Self>> {
        let queue = Mutex::default();
        let groups =
            engine.hot.has_groups.then(|| Arc::new(Self { engine: engine.clone(), queue }));
        if let Some(groups) = &groups {
            let _ = engine.hot.member_queue.set(Box::new(Arc::downgrade(groups)));
        }
        groups
    }

    /// Queues an attempt whose closure has ended, if it may be composed with others. `is_retry`: an
    /// earlier attempt of the transaction failed. A transaction that only reads queues only if this
    /// process writes one of its documents, or if it is a retry.
    pub(crate) fn apply(
        self: &Arc<Self>,
        attempt: &Arc<Attempt>,
        attempts: &Attempts,
        is_retry: bool,
    ) -> Option<Application> {
        // The attempts of its groups have numbers of their own.
        if attempts.count() > MAX_ATTEMPT / 2 {
            return None;
        }
        let uses = Self::uses_of(attempt)?;
        let now = self.engine.now();
        let only_reads = uses.only_reads();
        let is_unapplied = |key| self.engine.hot.handoffs.contains(key);
        let is_written =
            || self.queue.lock().is_any_written(&uses.read) || uses.read.iter().any(is_unapplied);
        // While it is the turn of another process at its documents, a reader waits for that process
        // alone.
        let is_turn = || self.engine.hot.board.may_lock(&uses.read, now);
        if only_reads && (!is_retry && !is_written() || !is_turn()) {
            return None;
        }
        let wanted = (!only_reads).then(|| self.engine.hot.board.want(uses.keys()));
        let runtime = Handle::try_current().ok()?;
        let (tell, told) = mpsc::unbounded_channel();
        let standing = SharedStanding::default();
        let applicant = Applicant {
            attempt: attempt.clone(),
            attempts: attempts.clone(),
            collections: uses.collections(),
            uses,
            most: usize::MAX,
            returns: 0,
            passed_over: false,
            _wanted: wanted,
            standing: standing.clone(),
            tell,
            served_in: self.engine.lifecycle.served_in(&runtime),
            runtime,
        };
        let ends_at = attempt.ends_at();
        let place = self.queue.lock().enter(applicant);
        self.call_if_free(Some(place));
        Some(Application { groups: self.clone(), place, standing, told, ends_at })
    }

    /// Has those composed whose turn it is.
    pub(crate) fn call(self: &Arc<Self>) {
        self.call_if_free(None);
    }

    fn call_if_free(self: &Arc<Self>, only: Option<Place>) {
        let now = self.engine.now();
        loop {
            let called = self.queue.lock().call(now, only, &self.engine);
            let Some((number, runtime)) = called else { return };
            let turn = Turn(Arc::new(TurnTaken { groups: self.clone(), number }));
            let composing = self.clone().compose_next(turn, runtime.id());
            self.engine.lifecycle.spawn_for(&runtime, composing);
            // Each set of collections has turns of its own. A turn that ended at once has no
            // runtime any more.
            if only.is_some() || !self.queue.lock().has_turn(number) {
                return;
            }
        }
    }

    /// Takes an applicant out of the queue, if it is still there, and has those composed who waited for it alone. Returns its
    /// documents then.
    fn leave(self: &Arc<Self>, place: Place) -> Option<Uses> {
        let left = self.queue.lock().leave(place)?;
        self.call();
        Some(left.uses)
    }

    /// The documents of an attempt, if it may be composed with others.
    fn uses_of(attempt: &Attempt) -> Option<Uses> {
        let (read, written) = attempt.documents_to_join()?;
        Some(Uses { read, written })
    }
}

impl MemberQueue for Weak<Groups> {
    fn call(&self) {
        if let Some(groups) = self.upgrade() {
            groups.call();
        }
    }

    fn documents(&self) -> BTreeSet<Key> {
        self.upgrade().map(|groups| groups.queue.lock().documents()).unwrap_or_default()
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
    /// By each of its members.
    uses: Vec<Uses>,
}

impl Documents {
    fn new(groups: &Arc<Groups>, uses: Vec<Uses>) -> Self {
        Self { groups: groups.clone(), uses }
    }

    /// Other transactions may use these. What was not locked over its commit is for that commit to
    /// apply.
    fn free(&self, uses: &[Uses]) {
        {
            let mut queue = self.groups.queue.lock();
            uses.iter().for_each(|uses| queue.free(uses));
        }
        self.groups.engine.hot.handoffs.nudge(uses.iter().flat_map(|uses| &uses.written));
        self.groups.call();
    }
}

impl Guard for Documents {}

impl Places for Documents {
    fn give_back(&mut self, given: &dyn Fn(&Key) -> bool) {
        let given = |uses: &mut Uses| Uses {
            written: uses.written.extract_if(.., |key| given(key)).collect(),
            ..Uses::default()
        };
        let given: Vec<Uses> =
            self.uses.iter_mut().map(given).filter(|given| !given.written.is_empty()).collect();
        if !given.is_empty() {
            self.free(&given);
        }
    }

    fn reclaim(&mut self, keys: BTreeSet<Key>) -> BTreeSet<Key> {
        let uses = self.groups.queue.lock().reclaim(keys);
        if !uses.written.is_empty() {
            self.uses.push(uses.clone());
        }
        uses.written
    }
}

impl Drop for Documents {
    fn drop(&mut self) {
        self.free(&self.uses);
    }
}

/// What goes with a turn: the documents that are only read.
#[derive(Debug)]
struct TurnWithReads {
    _reads: Documents,
    _turn: Turn,
}

impl Guard for TurnWithReads {}
