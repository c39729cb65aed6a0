//! The board of this process: its wanted documents, and policy decisions.
//!
//! The decisions come from the [policy](txn_protocol::board). The policy is dormant while no
//! other process competes. Then this process polls the board only during hand-offs.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use txn_protocol::board::{
    BoardWrite, DocumentSet, KeyHash, Look, Node, Numbers, Policy, Work, Written,
};
use txn_protocol::ids::Age;
use txn_store::Key;

/// The initial estimate of a round trip.
const ROUND_TRIP: Duration = Duration::from_millis(2);

/// The longest sample of a round trip. Slower requests count as this time.
const LONGEST_SAMPLE: Duration = Duration::from_secs(1);

/// How many round trips locks wait for the refresh of a turn.
///
/// The refresh of a few documents takes two round trips, and that of 500 documents on a loaded
/// server takes eight.
const REFRESH: u32 = 12;

/// How many round trips a restarted transaction still wants its documents.
///
/// A transaction that waited for its turn runs its closure again first.
const KEPT: u32 = 8;

/// The board task checks the clock at least this often.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// See the [module](self).
pub(crate) struct Board {
    /// Whether processes take turns at all.
    is_enabled: bool,
    state: Mutex<BoardState>,
    /// Whether the policy is not dormant.
    is_engaged: AtomicBool,
    /// Wakes the driver for a change that the policy must see.
    stirred: Notify,
    /// Wakes waiters after each decision.
    changed: Notify,
}

struct BoardState {
    policy: Policy,
    /// Documents that transactions want.
    wanted: Counts,
    /// Documents of transactions that start again, and until when these documents count.
    kept: Vec<(Vec<KeyHash>, Duration)>,
    /// Transactions that wait or run.
    clients: u32,
    /// The running transactions, and since when each waits for a lost document.
    ///
    /// Another process got the lost document first.
    passed_over: BTreeMap<Age, Option<Duration>>,
    /// Documents that attempts without a record have locked, or are locking.
    locking: Counts,
    /// Documents of attempts under way, until their commits or releases are applied.
    under_way: Counts,
    /// The number of the driver, and the time of its last decision.
    driver: Option<(u64, Duration)>,
    next_driver: u64,
    /// Documents that other processes wanted since this process had its turn.
    others_wanted: DocumentSet,
    /// Whether a turn has begun that the driver has not seen.
    has_arrived: bool,
    /// The running refresh: its number, and until when locks wait.
    refresh: Option<(u64, Duration)>,
    refreshes: u64,
}

/// How many transactions or attempts use each document.
#[derive(Default)]
struct Counts(HashMap<KeyHash, u32>);

impl Counts {
    fn add(&mut self, documents: &[KeyHash]) {
        for document in documents {
            *self.0.entry(*document).or_default() += 1;
        }
    }

    fn remove(&mut self, documents: &[KeyHash]) {
        for document in documents {
            match self.0.get_mut(document) {
                Some(count) if *count > 1 => *count -= 1,
                _ => _ = self.0.remove(document),
            }
        }
    }

    /// Whether a document of the wish is in use.
    ///
    /// Without a wish, any document counts.
    fn is_any_of(&self, policy: &Policy) -> bool {
        match policy.has_wish() {
            true => self.0.keys().any(|document| policy.is_wished(*document)),
            false => !self.0.is_empty(),
        }
    }
}

/// The next requests of the driver.
pub(crate) struct BoardStep {
    /// The number of slots to read.
    pub(crate) look: Option<usize>,
    pub(crate) write: Option<BoardWrite>,
    /// The number of the refresh, if a turn begins.
    pub(crate) refresh: Option<u64>,
    /// When the policy decides again, on the monotonic clock.
    pub(crate) until: Option<Duration>,
}

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Board").field("is_engaged", &self.is_engaged).finish_non_exhaustive()
    }
}

impl Board {
    /// `node`: a random number of this process. `is_enabled`: whether processes take turns at all.
    pub(crate) fn new(node: u64, is_enabled: bool) -> Self {
        let state = BoardState {
            policy: Policy::new(Node(node), ROUND_TRIP, Numbers::default()),
            wanted: Counts::default(),
            kept: Vec::new(),
            clients: 0,
            passed_over: BTreeMap::new(),
            locking: Counts::default(),
            under_way: Counts::default(),
            driver: None,
            next_driver: 0,
            others_wanted: DocumentSet::default(),
            has_arrived: false,
            refresh: None,
            refreshes: 0,
        };
        Self {
            is_enabled,
            state: Mutex::new(state),
            is_engaged: AtomicBool::new(false),
            stirred: Notify::new(),
            changed: Notify::new(),
        }
    }

    /// Whether processes take turns at all.
    pub(crate) fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// Registers documents that a transaction wants, until the result is dropped.
    pub(crate) fn want<'k>(self: &Arc<Self>, keys: impl IntoIterator<Item = &'k Key>) -> Wanted {
        let hashes = self.hashes(keys);
        let mut state = self.state.lock();
        state.clients += 1;
        state.wanted.add(&hashes);
        drop(state);
        self.stir();
        Wanted { board: self.clone(), hashes }
    }

    /// Keeps the documents of a transaction that starts again.
    ///
    /// The transaction waited for its turn, and wants the documents soon.
    pub(crate) fn keep<'k>(&self, keys: impl IntoIterator<Item = &'k Key>, now: Duration) {
        if self.is_engaged.load(Ordering::Acquire) {
            let hashes = self.hashes(keys);
            let mut state = self.state.lock();
            let until = now + state.policy.round_trip() * KEPT;
            state.kept.push((hashes, until));
        }
    }

    /// Registers an attempt that is about to lock documents.
    pub(crate) fn begin(self: &Arc<Self>) -> UnderWay {
        UnderWay { board: self.clone(), hashes: Vec::new(), is_locking: true }
    }

    fn hashes<'k>(&self, keys: impl IntoIterator<Item = &'k Key>) -> Vec<KeyHash> {
        match self.is_enabled {
            true => keys.into_iter().map(hash).collect(),
            false => Vec::new(),
        }
    }

    /// Registers a running transaction until the result is dropped.
    ///
    /// Meanwhile the documents that the transaction loses to other processes count.
    pub(crate) fn contend(self: &Arc<Self>, age: Age) -> Contender {
        self.state.lock().passed_over.insert(age, None);
        Contender { board: self.clone(), age }
    }

    /// Notes that a transaction lost a document to another process.
    pub(crate) fn lost(&self, age: Age, now: Duration) {
        if !self.is_enabled {
            return;
        }
        let state = &mut *self.state.lock();
        match state.passed_over.get_mut(&age) {
            Some(Some(_)) => {}
            Some(since) => {
                *since = Some(now);
                state.policy.met_another(now);
            }
            // The caller of the transaction is gone.
            None => state.policy.met_another(now),
        }
        self.is_engaged.store(true, Ordering::Release);
        self.stir();
    }

    /// Notes that a transaction got the document that it had lost.
    pub(crate) fn won(&self, age: Age) {
        if let Some(since) = self.state.lock().passed_over.get_mut(&age) {
            *since = None;
        }
    }

    /// Notes the time of answered locks.
    ///
    /// While this process waits for documents, locks on others do not count: a slow index would
    /// make the process slow for all.
    pub(crate) fn measure_locks<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k Key>,
        round_trip: Duration,
    ) {
        let policy = &mut self.state.lock().policy;
        if !policy.has_wish() || keys.into_iter().any(|key| policy.is_wished(hash(key))) {
            policy.measure(round_trip.min(LONGEST_SAMPLE));
        }
    }

    /// Notes the time of a poll.
    pub(crate) fn measure(&self, round_trip: Duration) {
        self.state.lock().policy.measure(round_trip.min(LONGEST_SAMPLE));
    }

    /// The smoothed time of a request.
    pub(crate) fn round_trip(&self) -> Duration {
        self.state.lock().policy.round_trip()
    }

    /// Notes acknowledged locks on documents.
    pub(crate) fn locked(&self, keys: impl IntoIterator<Item: Borrow<Key>>, now: Duration) {
        self.use_turn(keys, |policy| policy.locked(now));
    }

    /// Notes locks by hand-off, over commits of this process.
    pub(crate) fn handed_off(&self, now: Duration) {
        if self.is_enabled {
            self.state.lock().policy.handed_over(now);
        }
    }

    /// Notes the commit of an attempt that used these documents.
    pub(crate) fn committed(&self, keys: impl IntoIterator<Item: Borrow<Key>>, now: Duration) {
        self.use_turn(keys, |policy| policy.committed(now));
    }

    fn use_turn(
        &self,
        keys: impl IntoIterator<Item: Borrow<Key>>,
        use_turn: impl FnOnce(&mut Policy),
    ) {
        if !self.is_engaged.load(Ordering::Acquire) {
            return;
        }
        let policy = &mut self.state.lock().policy;
        if keys.into_iter().any(|key| policy.is_of_turn(hash(key.borrow()))) {
            use_turn(policy);
        }
    }

    /// Whether this process may lock the documents now.
    ///
    /// Another process's turn at one of the documents forbids the lock, and so does a running
    /// refresh.
    pub(crate) fn may_lock<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k Key>,
        now: Duration,
    ) -> bool {
        let is_refreshed = |state: &BoardState, document| {
            state.refresh.is_none_or(|(_, until)| now >= until || !state.policy.is_wished(document))
        };
        self.all(keys, |state, document| {
            state.policy.may_lock(document, now) && is_refreshed(state, document)
        })
    }

    /// Whether another process has its turn at one of the documents.
    ///
    /// Also true while this process ends its own turn.
    pub(crate) fn is_turn_of_another<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k Key>,
        now: Duration,
    ) -> bool {
        !self.all(keys, |state, document| state.policy.may_lock(document, now))
    }

    fn all<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k Key>,
        holds: impl Fn(&BoardState, KeyHash) -> bool,
    ) -> bool {
        if !self.is_engaged.load(Ordering::Acquire) {
            return true;
        }
        let state = &*self.state.lock();
        keys.into_iter().all(|key| holds(state, hash(key)))
    }

    /// Notes that a refresh has ended, with or without success.
    pub(crate) fn refreshed(&self, number: u64) {
        let mut state = self.state.lock();
        state.refresh = state.refresh.filter(|(current, _)| *current != number);
        drop(state);
        self.stir();
    }

    /// Drops the wish of a process that ends. Returns the write for the board.
    pub(crate) fn leave(&self, now: Duration) -> Option<BoardWrite> {
        let mut state = self.state.lock();
        state.policy.drop_wish();
        state.policy.take_write(now)
    }

    /// Takes the documents that other processes wanted since the last turn.
    ///
    /// Other processes may have written these documents.
    pub(crate) fn take_others_wanted(&self) -> DocumentSet {
        let state = &mut *self.state.lock();
        let mut current = DocumentSet::default();
        state.policy.wanted_by_others().for_each(|set| current.unite(set));
        std::mem::replace(&mut state.others_wanted, current)
    }

    /// Waits for the next decision after this call. Cancel safe.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Waits for a change that the policy must see. Cancel safe.
    pub(crate) async fn stirred(&self) {
        self.stirred.notified().await;
    }

    /// Returns a new driver, if the board needs one.
    ///
    /// A driver that rests with the runtime of its caller is replaced.
    pub(crate) fn new_driver(self: &Arc<Self>, now: Duration) -> Option<Driving> {
        let mut state = self.state.lock();
        let needs = !state.policy.is_dormant() || state.policy.next_look(now).is_some();
        let is_driven = state.driver.is_some_and(|(_, at)| now < at + 2 * LONGEST_PAUSE);
        if !needs || is_driven {
            return None;
        }
        if state.driver.is_some() {
            state.policy.requests_lost();
        }
        let number = state.next_driver;
        state.next_driver += 1;
        state.driver = Some((number, now));
        Some(Driving { board: self.clone(), number })
    }

    /// The next requests of the driver. `None` if the driver ends.
    pub(crate) fn step(&self, driver: &Driving, now: Duration) -> Option<BoardStep> {
        let step = {
            let state = &mut *self.state.lock();
            match &mut state.driver {
                Some((number, at)) if *number == driver.number => *at = now,
                _ => return None,
            }
            state.decide(now);
            let is_due = state.policy.next_look(now).is_some_and(|at| at <= now);
            let look = is_due.then(|| {
                state.policy.look_sent();
                state.policy.slots()
            });
            let write = state.policy.take_write(now);
            let has_arrived = std::mem::take(&mut state.has_arrived);
            let refresh = state.refresh.filter(|_| has_arrived).map(|(number, _)| number);
            let until = state.policy.next_change(now);
            self.is_engaged.store(!state.policy.is_dormant(), Ordering::Release);
            let is_over = state.policy.is_dormant() && !state.policy.has_request();
            (!is_over || until.is_some()).then_some(BoardStep { look, write, refresh, until })
        };
        self.changed.notify_waiters();
        step
    }

    /// Passes the result of a poll to the policy. `None` means a failure.
    pub(crate) fn observe(&self, driver: u64, look: Option<Look>, now: Duration) {
        let state = &mut *self.state.lock();
        if !state.is_driven_by(driver) {
            return;
        }
        match look {
            Some(look) => {
                state.policy.observe(look, now);
                let wanted = state.policy.wanted_by_others();
                wanted.for_each(|set| state.others_wanted.unite(set));
                state.decide(now);
            }
            None => state.policy.look_failed(now),
        }
    }

    /// Passes the answer to a board write to the policy.
    pub(crate) fn written(&self, driver: u64, answer: Written, now: Duration) {
        let state = &mut *self.state.lock();
        if state.is_driven_by(driver) {
            state.policy.written(answer, now);
        }
    }

    fn stir(&self) {
        if self.is_engaged.load(Ordering::Acquire) {
            self.stirred.notify_one();
        }
    }
}

impl BoardState {
    fn is_driven_by(&self, driver: u64) -> bool {
        self.driver.is_some_and(|(number, _)| number == driver)
    }

    /// Lets the policy decide.
    ///
    /// From the start of a turn to its refresh, locks on documents of the wish wait.
    fn decide(&mut self, now: Duration) {
        let work = self.work(now);
        self.policy.update(work, now);
        if self.policy.take_arrival() {
            self.has_arrived = true;
            self.refreshes += 1;
            let until = now + (self.policy.round_trip() * REFRESH).min(LONGEST_PAUSE);
            self.refresh = Some((self.refreshes, until));
        }
    }

    fn work(&mut self, now: Duration) -> Work {
        self.kept.retain(|(_, until)| now < *until);
        let mut wanted = DocumentSet::default();
        wanted.extend(self.wanted.0.keys().copied());
        wanted.extend(self.kept.iter().flat_map(|(hashes, _)| hashes).copied());
        Work {
            wanted,
            clients: self.clients,
            passed_over_since: self.passed_over.values().flatten().min().copied(),
            is_locking: self.locking.is_any_of(&self.policy),
            is_under_way: self.under_way.is_any_of(&self.policy),
        }
    }
}

pub(crate) fn hash(key: &Key) -> KeyHash {
    KeyHash::of(&key.collection, &key.id)
}

/// Marks the task that polls the board as running.
#[derive(Debug)]
pub(crate) struct Driving {
    board: Arc<Board>,
    pub(crate) number: u64,
}

impl Drop for Driving {
    fn drop(&mut self) {
        let state = &mut *self.board.state.lock();
        if state.is_driven_by(self.number) {
            state.driver = None;
            state.policy.requests_lost();
            (state.refresh, state.has_arrived) = (None, false);
        }
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
        state.wanted.remove(&self.hashes);
        drop(state);
        self.board.stir();
    }
}

/// An attempt that locks, commits or releases.
///
/// Drop this value after the commit or the release is applied.
#[derive(Debug)]
pub(crate) struct UnderWay {
    board: Arc<Board>,
    hashes: Vec<KeyHash>,
    is_locking: bool,
}

impl UnderWay {
    /// Registers documents that the attempt is about to lock.
    pub(crate) fn add<'k>(&mut self, keys: impl IntoIterator<Item = &'k Key>) {
        let hashes = self.board.hashes(keys);
        let mut state = self.board.state.lock();
        state.under_way.add(&hashes);
        if self.is_locking {
            state.locking.add(&hashes);
        }
        drop(state);
        self.hashes.extend(hashes);
    }

    /// Ends the wait of the process's turn for documents that are applied or handed off.
    ///
    /// The turn still waits for the other documents of the attempt.
    pub(crate) fn release_turn<'k>(&mut self, keys: impl IntoIterator<Item = &'k Key>) {
        let mut released = Vec::new();
        for hash in self.board.hashes(keys) {
            if let Some(index) = self.hashes.iter().position(|own| *own == hash) {
                released.push(self.hashes.swap_remove(index));
            }
        }
        if !released.is_empty() {
            self.board.state.lock().under_way.remove(&released);
            self.board.stir();
        }
    }

    /// Notes that the record of the attempt is acknowledged.
    pub(crate) fn recorded(&mut self) {
        if std::mem::take(&mut self.is_locking) {
            self.board.state.lock().locking.remove(&self.hashes);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.recorded();
        self.board.state.lock().under_way.remove(&self.hashes);
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

#[cfg(test)]
#[path = "board_tests.rs"]
mod tests;
