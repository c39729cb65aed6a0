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
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};

use crate::attempt::Attempt;
use crate::attempt::seat::{Guard, Places};
use crate::engine::Engine;
use crate::store::Key;
use txn_protocol::ids::{Age, MAX_ATTEMPT};

use queue::{Applicant, Queue};
use standing::SharedStanding;
use uses::Uses;

pub(crate) use application::{Application, Told};

/// How long a turn counts. One that takes longer, for the store is slow in a part, leaves its place to others.
const SLOW: Duration = Duration::from_millis(100);

/// How long a transaction that only reads waits in the queue, before it validates its reads by itself.
///
/// A group keeps each of its documents until all of them are applied. If one index is blocked, that never happens, and a
/// reader of the other documents would wait until its deadline.
const READER_PATIENCE: Duration = Duration::from_secs(3);

/// How many rounds of the runtime an offer stands: those who are ready to run are composed.
const ROUNDS: usize = 4;

/// Whoever wants to write documents so soon after their last commit is expected to be back as soon after its own: their apply waits
/// for so long.
const ON_THE_HEELS: Duration = Duration::from_millis(1);

/// A document that nobody else of this process waits for is left like that from group to group so often at most: whoever reads it
/// under no lock, and other processes, find it applied in between.
const AWAITED_CHAIN: u8 = 4;

/// A place in the queue: by age, then by arrival.
type Place = (Age, u64);

/// The groups of a domain in this process.
#[derive(Debug)]
pub(crate) struct Groups {
    engine: Arc<Engine>,
    queue: Mutex<Queue>,
    /// Somebody came, or was taken.
    moved: Notify,
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
        let (queue, moved) = (Mutex::default(), Notify::new());
        engine.groups.then(|| Arc::new(Self { engine: engine.clone(), queue, moved }))
    }

    /// Queues an attempt whose closure has ended, if it may be composed with others. `insists`: others overtook it before. Who only
    /// reads has nothing to do here unless somebody of this process writes that, or did, and waits for other processes by itself.
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
        let now = self.engine.now();
        let is_contested = self.engine.contested.is_any(uses.keys(), now);
        let only_reads = uses.only_reads();
        let is_written = || self.queue.lock().is_any_written(&uses.read);
        if only_reads && (is_contested || !insists && !is_written()) {
            return None;
        }
        // What other processes want is locked first, too: else each would lock a part of it, and do its work in vain.
        if is_contested {
            cov_mark::hit!(contested_documents_are_locked_first);
        }
        let insists = !only_reads && (insists || is_contested);
        let waited = |key| self.engine.memory.unapplied_for(key, now);
        let is_on_its_heels = |key| waited(key).is_some_and(|since| since <= ON_THE_HEELS);
        let returns_at_once = !insists && !only_reads && uses.written.iter().all(is_on_its_heels);
        let runtime = Handle::try_current().ok()?;
        let (tell, told) = mpsc::unbounded_channel();
        let standing = SharedStanding::default();
        let applicant = Applicant {
            attempt: attempt.clone(),
            attempts: attempts.clone(),
            uses,
            most: usize::MAX,
            insists,
            returns_at_once,
            returns: 0,
            passed_over: false,
            standing: standing.clone(),
            tell,
            served_in: self.engine.lifecycle.served_in(&runtime),
            runtime,
        };
        let ends_at = attempt.ends_at();
        let leaves_at = only_reads.then(|| now + READER_PATIENCE);
        let place = self.queue.lock().enter(applicant);
        self.call_if_free(Some(place));
        self.moved.notify_waiters();
        Some(Application { groups: self.clone(), place, standing, told, ends_at, leaves_at })
    }

    /// Has those composed whose turn it is.
    pub(crate) fn call(self: &Arc<Self>) {
        self.call_if_free(None);
    }

    /// Returns whether it gave a turn.
    fn call_if_free(self: &Arc<Self>, only: Option<Place>) -> bool {
        let now = self.engine.now();
        let called = self.queue.lock().call(now, only);
        let is_called = called.is_some();
        if let Some((number, runtime)) = called {
            let turn = Turn(Arc::new(TurnTaken { groups: self.clone(), number }));
            let composing = self.clone().compose_next(turn, runtime.id());
            self.engine.lifecycle.spawn_for(&runtime, composing);
        }
        is_called
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
    /// Those that it took over from the group before.
    over: BTreeSet<Key>,
    /// Whether those who wrote them are likely to be back at once, as they were the last time.
    awaits_them: bool,
}

impl Documents {
    fn new(groups: &Arc<Groups>, uses: Vec<Uses>) -> Self {
        Self { groups: groups.clone(), uses, over: BTreeSet::new(), awaits_them: false }
    }

    fn written(&self) -> BTreeSet<Key> {
        self.uses.iter().flat_map(|uses| &uses.written).cloned().collect()
    }

    /// Waits a moment for those who take what is offered, unless others wait for it already.
    async fn wait_until_taken(&self, offered: &BTreeSet<Key>) {
        let moved = async {
            loop {
                let moved = self.groups.moved.notified();
                if !self.groups.queue.lock().awaits_its_next(offered) {
                    cov_mark::hit!(whoever_is_back_at_once_is_waited_for);
                    break;
                }
                moved.await;
            }
        };
        tokio::select! {
            biased;
            () = moved => {}
            () = self.groups.engine.config.clock.sleep(ON_THE_HEELS) => {}
        }
    }

    /// Nobody may take what is offered any more. Returns what was taken.
    fn withdraw(&mut self) -> BTreeSet<Key> {
        let taken = self.groups.queue.lock().withdraw(&self.written());
        self.over.retain(|key| !taken.contains(key));
        taken
    }
}

impl Guard for Documents {}

impl Places for Documents {
    fn are_awaited(&self) -> bool {
        let written = self.uses.iter().flat_map(|uses| &uses.written);
        self.awaits_them || self.groups.queue.lock().is_any_wanted(written)
    }

    fn hand_over<'p>(
        &'p mut self,
        keys: &'p BTreeSet<Key>,
        chain: u8,
    ) -> BoxFuture<'p, BTreeSet<Key>> {
        Box::pin(async move {
            let offered: BTreeSet<Key> = self.written().intersection(keys).cloned().collect();
            self.groups.queue.lock().offer(offered.clone());
            self.groups.call();
            // Whoever is ready to run takes them now; where nobody is, this takes no time.
            for _ in 0..ROUNDS {
                tokio::task::yield_now().await;
            }
            if self.awaits_them && chain <= AWAITED_CHAIN {
                self.wait_until_taken(&offered).await;
            }
            self.withdraw()
        })
    }

    fn give_back(&mut self, given: &dyn Fn(&Key) -> bool) {
        self.over.retain(|key| !given(key));
        {
            let mut queue = self.groups.queue.lock();
            for uses in &mut self.uses {
                let written = uses.written.extract_if(.., |key| given(key)).collect();
                queue.free(&Uses { written, ..Uses::default() });
            }
        }
        self.groups.call();
    }

    fn is_over(&self, key: &Key) -> bool {
        self.over.contains(key)
    }

    fn decline(&mut self, declined: &dyn Fn(&Key) -> bool) {
        let declined: Vec<Key> = self.over.extract_if(.., |key| declined(key)).collect();
        self.groups.engine.successions.withdraw(&declined);
    }
}

impl Drop for Documents {
    fn drop(&mut self) {
        // An offer under way ends with whoever made it.
        drop(self.withdraw());
        self.decline(&|_| true);
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
