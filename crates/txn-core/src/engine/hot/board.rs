//! Turns between processes at hot documents: what this process wants, and the decisions of the
//! [policy](txn_protocol::board).
//!
//! The policy of a process that met no other process is dormant: it decides nothing and asks for nothing.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::store::Key;
use txn_protocol::board::{
    BoardWrite, DocumentSet, KeyHash, Look, Node, Numbers, Policy, Work, Written,
};
use txn_protocol::ids::Age;

/// The first guess of a round trip.
const ROUND_TRIP: Duration = Duration::from_millis(2);

/// See the [module](self).
pub(crate) struct Board {
    state: Mutex<State>,
    /// The process met another one lately.
    is_engaged: AtomicBool,
    /// Something happened that the policy has to see.
    stirred: Notify,
    /// A decision may be another one now.
    changed: Notify,
}

struct State {
    policy: Policy,
    /// How many transactions want each document.
    wanted: HashMap<KeyHash, u32>,
    /// Transactions that wait or run.
    clients: u32,
    /// Since when each transaction waits that lost a document to another process.
    passed_over: BTreeMap<Age, Duration>,
    /// Attempts without a record that hold a lock or have requested one.
    locking: u32,
    /// Attempts under way, until their commits or releases are applied.
    under_way: u32,
    /// A task looks at the board.
    is_driven: bool,
    /// What other processes wanted since this process had its turn.
    others_wanted: DocumentSet,
    /// A turn has begun, which the driver has not seen.
    has_arrived: bool,
    /// A turn has begun, and the documents of waiting transactions are being read.
    is_refreshing: bool,
}

/// What the driver does next.
pub(crate) struct Step {
    /// How many slots it reads.
    pub(crate) look: Option<usize>,
    pub(crate) write: Option<BoardWrite>,
    /// A turn begins.
    pub(crate) has_arrived: bool,
    /// When the policy decides again, on the monotonic clock.
    pub(crate) until: Option<Duration>,
}

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Board").field("is_engaged", &self.is_engaged).finish_non_exhaustive()
    }
}

impl Board {
    /// `node`: a random number of this process.
    pub(crate) fn new(node: u64) -> Self {
        let state = State {
            policy: Policy::new(Node(node), ROUND_TRIP, Numbers::default()),
            wanted: HashMap::new(),
            clients: 0,
            passed_over: BTreeMap::new(),
            locking: 0,
            under_way: 0,
            is_driven: false,
            others_wanted: DocumentSet::default(),
            has_arrived: false,
            is_refreshing: false,
        };
        Self {
            state: Mutex::new(state),
            is_engaged: AtomicBool::new(false),
            stirred: Notify::new(),
            changed: Notify::new(),
        }
    }

    /// A transaction wants documents, until the result is dropped.
    pub(crate) fn want<'k>(self: &Arc<Self>, keys: impl IntoIterator<Item = &'k Key>) -> Wanted {
        let hashes: Vec<KeyHash> = keys.into_iter().map(hash).collect();
        let mut state = self.state.lock();
        state.clients += 1;
        for hash in &hashes {
            *state.wanted.entry(*hash).or_default() += 1;
        }
        drop(state);
        self.stir();
        Wanted { board: self.clone(), hashes }
    }

    /// An attempt is about to lock documents.
    pub(crate) fn begin(self: &Arc<Self>) -> UnderWay {
        let mut state = self.state.lock();
        (state.locking, state.under_way) = (state.locking + 1, state.under_way + 1);
        UnderWay { board: self.clone(), is_locking: true }
    }

    /// A transaction is run. What it lost counts until the result is dropped.
    pub(crate) fn contend(self: &Arc<Self>, age: Age) -> Contender {
        Contender { board: self.clone(), age }
    }

    /// A transaction lost a document to another process.
    pub(crate) fn lost(&self, age: Age, now: Duration) {
        let mut state = self.state.lock();
        if let Entry::Vacant(entry) = state.passed_over.entry(age) {
            entry.insert(now);
            state.policy.met_another(now);
        }
        drop(state);
        self.is_engaged.store(true, Ordering::Release);
        self.stir();
    }

    /// A request was answered.
    pub(crate) fn measure(&self, round_trip: Duration) {
        self.state.lock().policy.measure(round_trip);
    }

    /// The smoothed time of a request.
    pub(crate) fn round_trip(&self) -> Duration {
        self.state.lock().policy.round_trip()
    }

    /// Locks were acknowledged. `handed_off`: some overwrote a commit of this process.
    pub(crate) fn locked(&self, handed_off: bool, now: Duration) {
        let mut state = self.state.lock();
        state.policy.locked(now);
        if handed_off {
            state.policy.handed_over(now);
        }
    }

    /// An attempt committed.
    pub(crate) fn committed(&self, now: Duration) {
        self.state.lock().policy.committed(now);
    }

    /// Whether it is not the turn of another process at one of the documents.
    pub(crate) fn may_lock<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k Key>,
        now: Duration,
    ) -> bool {
        if !self.is_engaged.load(Ordering::Acquire) {
            return true;
        }
        let state = self.state.lock();
        !state.is_refreshing && keys.into_iter().all(|key| state.policy.may_lock(hash(key), now))
    }

    /// The documents of waiting transactions were read, or could not be.
    pub(crate) fn refreshed(&self) {
        self.state.lock().is_refreshing = false;
        self.stir();
    }

    /// The driver runs, until the result is dropped.
    pub(crate) fn driving(self: &Arc<Self>) -> Driving {
        Driving(self.clone())
    }

    /// The documents that other processes may have written since this process had its turn.
    pub(crate) fn take_others_wanted(&self) -> DocumentSet {
        let state = &mut *self.state.lock();
        let mut current = DocumentSet::default();
        state.policy.wanted_by_others().for_each(|set| current.unite(set));
        let mut wanted = std::mem::replace(&mut state.others_wanted, current.clone());
        wanted.unite(&current);
        wanted
    }

    /// Ends once a decision may be another one than at this call. Cancel safe.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Returns once something happened that the policy has to see. Cancel safe.
    pub(crate) async fn stirred(&self) {
        self.stirred.notified().await;
    }

    /// Whether a task has to look at the board, and none does. The caller starts one.
    pub(crate) fn needs_driver(&self, now: Duration) -> bool {
        let mut state = self.state.lock();
        let needs = !state.policy.is_dormant() || state.policy.next_look(now).is_some();
        needs && !std::mem::replace(&mut state.is_driven, needs)
    }

    /// What the driver does next; none if it ends.
    pub(crate) fn step(&self, now: Duration) -> Option<Step> {
        let step = {
            let state = &mut *self.state.lock();
            state.decide(now);
            let is_due = state.policy.next_look(now).is_some_and(|at| at <= now);
            let look = is_due.then(|| {
                state.policy.look_sent();
                state.policy.slots()
            });
            let write = state.policy.take_write(now);
            let has_arrived = std::mem::take(&mut state.has_arrived);
            let until = state.policy.next_change(now);
            self.is_engaged.store(!state.policy.is_dormant(), Ordering::Release);
            if look.is_none() && write.is_none() && until.is_none() && state.policy.is_dormant() {
                None
            } else {
                Some(Step { look, write, has_arrived, until })
            }
        };
        self.changed.notify_waiters();
        step
    }

    /// A look was answered, or not.
    pub(crate) fn observe(&self, look: Option<Look>, now: Duration) {
        let state = &mut *self.state.lock();
        match look {
            Some(look) => {
                state.policy.measure(now.saturating_sub(look.sent_at));
                state.policy.observe(look, now);
                let wanted = state.policy.wanted_by_others();
                wanted.for_each(|set| state.others_wanted.unite(set));
                state.decide(now);
            }
            None => state.policy.look_failed(now),
        }
    }

    /// A write of the board was answered.
    pub(crate) fn written(&self, answer: Written, now: Duration) {
        self.state.lock().policy.written(answer, now);
    }

    fn stir(&self) {
        if self.is_engaged.load(Ordering::Acquire) {
            self.stirred.notify_one();
        }
    }
}

impl State {
    /// Has the policy decide. No transaction locks a document between the begin of a turn and its refresh.
    fn decide(&mut self, now: Duration) {
        let work = self.work();
        self.policy.update(work, now);
        if self.policy.take_arrival() {
            (self.has_arrived, self.is_refreshing) = (true, true);
        }
    }

    fn work(&self) -> Work {
        let mut wanted = DocumentSet::default();
        wanted.extend(self.wanted.keys().copied());
        Work {
            wanted,
            clients: self.clients,
            passed_over_since: self.passed_over.values().min().copied(),
            is_locking: self.locking > 0,
            is_under_way: self.under_way > 0,
        }
    }
}

pub(crate) fn hash(key: &Key) -> KeyHash {
    KeyHash::of(&key.collection, &key.id)
}

/// The task that looks at the board runs.
#[derive(Debug)]
pub(crate) struct Driving(Arc<Board>);

impl Drop for Driving {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        (state.is_driven, state.is_refreshing, state.has_arrived) = (false, false, false);
    }
}

/// Documents that a transaction wants.
#[derive(Debug)]
pub(crate) struct Wanted {
    board: Arc<Board>,
    hashes: Vec<KeyHash>,
}

impl Drop for Wanted {
    fn drop(&mut self) {
        let mut state = self.board.state.lock();
        state.clients -= 1;
        for hash in &self.hashes {
            match state.wanted.get_mut(hash) {
                Some(count) if *count > 1 => *count -= 1,
                _ => _ = state.wanted.remove(hash),
            }
        }
        drop(state);
        self.board.stir();
    }
}

/// An attempt that locks, commits or releases. Dropped, its commit or its release is applied.
#[derive(Debug)]
pub(crate) struct UnderWay {
    board: Arc<Board>,
    is_locking: bool,
}

impl UnderWay {
    /// Its record is acknowledged.
    pub(crate) fn recorded(&mut self) {
        if std::mem::take(&mut self.is_locking) {
            self.board.state.lock().locking -= 1;
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.recorded();
        self.board.state.lock().under_way -= 1;
        self.board.stir();
    }
}

/// A transaction that may lose documents to other processes.
#[derive(Debug)]
pub(crate) struct Contender {
    board: Arc<Board>,
    age: Age,
}

impl Drop for Contender {
    fn drop(&mut self) {
        self.board.state.lock().passed_over.remove(&self.age);
    }
}
