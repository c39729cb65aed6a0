//! The simulated server, with one primary per collection.
//!
//! Writes are visible before they are durable, and vanish if the primary crashes. The
//! [`FaultStore`](crate::FaultStore) in front of the server adds the faults of the network: lost,
//! late, doubled and wrongly answered requests.

mod scroll;
mod slow;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use txn_store::embedded::{self, Decision, LIMITS, Place};
use txn_store::{Key, Outcome, Read, Source, StoreError, StoreErrorKind, Version, Write};

pub use scroll::KEEP_ALIVE;
use scroll::Scrolls;
pub use slow::{HeldUp, SHARDS, SlowPart, shard_of};

/// The probabilities of the server's own faults, between 0 and 1.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manners {
    /// A write is visible for some time before it is acknowledged.
    pub slow_replication: f64,
    /// The time of `slow_replication` is that of a hung replica: [`HUNG`].
    pub hung_replication: bool,
    /// A copy without the newest writes answers a read. Any copy may answer such a read.
    pub lagging_copy: f64,
    /// A scan omits a document written since the last refresh. A write block prevents this fault.
    pub scan_hides: f64,
    /// A scan omits older documents, too. No real server does so. The fault shows code that relies
    /// on scans.
    pub scan_hides_all: bool,
    /// The maximum page size of a scan, in documents. `None` for the requested size.
    pub page: Option<usize>,
    /// The answer with a page of a scan is lost. The scroll has advanced.
    pub lost_page: f64,
    /// A scroll is lost before its next page.
    pub lost_scroll: f64,
    /// An answer ends early.
    pub short_answer: f64,
    /// Items of a bulk request run in another order, with pauses.
    pub reordered: f64,
    /// A node does not know an alias that is younger than [`NEWS`].
    pub late_news: f64,
    /// The server repeats an item internally, and answers for the last try.
    ///
    /// The last try is refused: by a full queue, a block, a closed index, or the first try. The
    /// first try is carried out at once or up to [`FIRST_TRY`] later.
    pub sent_again: f64,
    /// The same, but the last try reaches a node without the index.
    pub sent_and_missed: f64,
}

/// The longest delay of an item's first try, from its answer on.
pub const FIRST_TRY: Duration = Duration::from_secs(5);

/// Whether a collection is reachable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Reachable.
    #[default]
    Open,
    /// An operator closed the collection.
    Closed,
    /// The node does not know the collection.
    Unknown,
}

/// The default time that a client waits for an answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// After this time every node knows an alias.
pub const NEWS: Duration = Duration::from_secs(2);

/// The longest time from the visibility of a write to its acknowledgement.
pub const REPLICATION: Duration = Duration::from_millis(400);

/// How long a replica hangs before the primary removes it.
pub const HUNG: Duration = Duration::from_secs(60);

/// The faults of the server so far, which real servers have, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misdeeds {
    /// Primaries that crashed.
    pub crashes: u64,
    /// Writes that were visible, were not acknowledged, and vanished.
    pub vanished: u64,
    /// Reads from a lagging copy.
    pub lagging: u64,
    /// Documents hidden from scans.
    pub hidden: u64,
    /// Pages of scans whose answer was lost.
    pub lost_pages: u64,
    /// Scrolls that were lost before their end.
    pub lost_scrolls: u64,
    /// Parts that became slow.
    pub slow_parts: u64,
    /// Requests with documents of a slow part.
    pub slow_requests: u64,
    /// Answers that ended early.
    pub short: u64,
    /// Bulk requests in another order.
    pub reordered: u64,
    /// Aliases that a node did not know yet.
    pub late_news: u64,
    /// Items that were sent again and answered for their last try.
    pub sent_again: u64,
    /// Collections that became unreachable.
    pub out_of_reach: u64,
}

impl Misdeeds {
    /// Returns each kind with its name.
    #[must_use]
    pub fn named(&self) -> [(&'static str, u64); 13] {
        [
            ("primaries crashed", self.crashes),
            ("writes vanished", self.vanished),
            ("lagging copies", self.lagging),
            ("hidden from scans", self.hidden),
            ("pages lost", self.lost_pages),
            ("scans lost", self.lost_scrolls),
            ("parts slow", self.slow_parts),
            ("requests to slow parts", self.slow_requests),
            ("short answers", self.short),
            ("reordered bulks", self.reordered),
            ("unknown aliases", self.late_news),
            ("items sent on again", self.sent_again),
            ("collections out of reach", self.out_of_reach),
        ]
    }
}

/// A write on the primary, and on no other copy.
#[derive(Debug)]
struct Unacknowledged {
    write: u64,
    version: Version,
    source: Option<Source>,
}

#[derive(Debug, Default)]
struct Document {
    durable: Option<(Version, Source)>,
    /// Unacknowledged writes on top of `durable`, oldest first.
    dirty: Vec<Unacknowledged>,
}

impl Document {
    fn on_primary(&self) -> Option<(Version, &Source)> {
        match self.dirty.last() {
            Some(top) => top.source.as_ref().map(|source| (top.version, source)),
            None => self.on_replica(),
        }
    }

    fn on_replica(&self) -> Option<(Version, &Source)> {
        self.durable.as_ref().map(|(version, source)| (*version, source))
    }

    /// Makes a write durable, with the writes before it. `at` is the index of the write in `dirty`.
    fn acknowledge(&mut self, at: usize) {
        if let Some(write) = self.dirty.drain(..=at).next_back() {
            self.durable = write.source.map(|source| (write.version, source));
        }
    }
}

#[derive(Debug)]
struct Collection {
    /// The number of the collection, assigned at its creation.
    incarnation: u64,
    owner: Option<String>,
    blocked: bool,
    reach: Reach,
    term: u64,
    last: u64,
    /// The last write before the last refresh.
    refreshed: u64,
    documents: BTreeMap<Place, Document>,
}

/// The time in which a vanished write was visible.
#[derive(Clone, Copy, Debug)]
pub struct Mirage {
    /// When the write became visible.
    pub from: Duration,
    /// When the write vanished.
    pub until: Duration,
}

#[derive(Debug)]
struct State {
    collections: BTreeMap<Arc<str>, Collection>,
    aliases: BTreeMap<Arc<str>, (Arc<str>, Instant)>,
    manners: Manners,
    misdeeds: Misdeeds,
    dice: fastrand::Rng,
    writes: u64,
    /// When each unacknowledged write became visible.
    seen: BTreeMap<u64, Duration>,
    mirages: Vec<Mirage>,
    scrolls: Scrolls,
    slow: Option<SlowPart>,
    held_up: Vec<HeldUp>,
    request_timeout: Duration,
    /// The server's time at its creation; `None` if it tells no time.
    epoch: Option<Duration>,
}

/// The simulated server.
#[derive(Debug)]
pub struct Server {
    /// A reference for tasks, which run even if no client waits.
    this: Weak<Self>,
    origin: Instant,
    state: Mutex<State>,
}

/// The result of a write on the primary.
enum Arrived {
    Answered(Outcome),
    /// Applied; acknowledged after every copy has the write.
    Replicating {
        write: u64,
        version: Version,
        collection: Arc<str>,
        term: u64,
        takes: Duration,
    },
}

impl Server {
    /// Creates an empty server.
    #[must_use]
    pub fn new(seed: u64, manners: Manners) -> Arc<Self> {
        let state = State {
            collections: BTreeMap::new(),
            aliases: BTreeMap::new(),
            manners,
            misdeeds: Misdeeds::default(),
            dice: fastrand::Rng::with_seed(seed),
            writes: 0,
            seen: BTreeMap::new(),
            mirages: Vec::new(),
            scrolls: Scrolls::default(),
            slow: None,
            held_up: Vec::new(),
            request_timeout: REQUEST_TIMEOUT,
            epoch: None,
        };
        let (origin, state) = (Instant::now(), Mutex::new(state));
        Arc::new_cyclic(|this| Self { this: this.clone(), origin, state })
    }

    /// Sets how long clients wait for an answer of a slow part.
    pub fn set_request_timeout(&self, timeout: Duration) {
        self.state.lock().request_timeout = timeout;
    }

    /// Makes the server tell its time from now on.
    ///
    /// `epoch` is the time at the creation of the server, since the Unix epoch.
    pub fn tell_time(&self, epoch: Duration) {
        self.state.lock().epoch = Some(epoch);
    }

    /// Changes the probabilities of faults from now on.
    pub fn set_manners(&self, manners: Manners) {
        self.state.lock().manners = manners;
    }

    /// Returns the faults so far.
    #[must_use]
    pub fn misdeeds(&self) -> Misdeeds {
        self.state.lock().misdeeds
    }

    /// Returns the writes that were visible and vanished.
    #[must_use]
    pub fn mirages(&self) -> Vec<Mirage> {
        self.state.lock().mirages.clone()
    }

    /// Crashes the primary of a collection, and promotes one of its replicas.
    ///
    /// Unacknowledged writes are lost, and their sequence numbers return under a new term.
    pub fn crash(&self) {
        let now = self.origin.elapsed();
        let mut state = self.state.lock();
        let state = &mut *state;
        // A collection with running writes, if there is one.
        let dirty = |collection: &Collection| {
            collection.documents.values().filter(|document| !document.dirty.is_empty()).count()
        };
        let Some(collection) = state.collections.values_mut().max_by_key(|c| dirty(c)) else {
            return;
        };
        state.misdeeds.crashes += 1;
        collection.term += 1;
        for document in collection.documents.values_mut() {
            for write in document.dirty.drain(..) {
                state.misdeeds.vanished += 1;
                if let Some(from) = state.seen.remove(&write.write) {
                    state.mirages.push(Mirage { from, until: now });
                }
            }
        }
        let versions = collection.documents.values().filter_map(Document::on_replica);
        collection.last = versions.map(|(version, _)| version.seq_no).max().unwrap_or(0);
    }

    /// Returns every durable document, as it would be on the disks.
    #[must_use]
    pub fn documents(&self) -> BTreeMap<Arc<str>, BTreeMap<String, Source>> {
        let state = self.state.lock();
        let of = |collection: &Collection| {
            let found = collection.documents.iter();
            found
                .filter_map(|(place, document)| {
                    Some((place.0.to_string(), document.on_replica()?.1.clone()))
                })
                .collect()
        };
        state.collections.iter().map(|(name, c)| (name.clone(), of(c))).collect()
    }

    /// Makes a collection unreachable, or reachable again.
    pub fn set_reach(&self, collection: &str, reach: Reach) {
        let mut state = self.state.lock();
        let state = &mut *state;
        if let Some(collection) = state.collections.get_mut(collection) {
            state.misdeeds.out_of_reach += u64::from(reach != Reach::Open);
            collection.reach = reach;
        }
    }

    /// Carries out one write on the primary.
    fn arrive(&self, write: &Write) -> Arrived {
        let now = self.origin.elapsed();
        let mut state = self.state.lock();
        let state = &mut *state;
        let answered = Arrived::Answered;
        if let Some(refusal) = embedded::refuse(&LIMITS, write) {
            return answered(Outcome::Invalid(refusal));
        }
        if write.require_alias && !state.knows_alias(&write.key.collection) {
            return answered(Outcome::MissingCollection);
        }
        let Some(name) = state.resolve(&write.key.collection) else {
            return answered(Outcome::MissingCollection);
        };
        let Some(collection) = state.collections.get_mut(&name) else {
            return answered(Outcome::MissingCollection);
        };
        match collection.reach {
            Reach::Open => {}
            Reach::Closed => return answered(Outcome::RejectedInDoubt(CLOSED.to_owned())),
            Reach::Unknown => return answered(Outcome::MissingCollection),
        }
        if collection.blocked {
            return answered(embedded::blocked(write));
        }
        let place = (write.key.id.clone(), write.key.routing.clone());
        let document = collection.documents.get(&place);
        let current = document.and_then(Document::on_primary).map(|(version, _)| version);
        let source = match embedded::decide(&write.op, current) {
            Decision::Answer(outcome) => return answered(outcome),
            Decision::Put(source) => Some(source.clone()),
            Decision::Remove => None,
        };
        collection.last += 1;
        let &mut Collection { incarnation, term, last: seq_no, .. } = collection;
        let version = Version { incarnation, term, seq_no };
        state.writes += 1;
        let number = state.writes;
        let document = collection.documents.entry(place).or_default();
        document.dirty.push(Unacknowledged { write: number, version, source });
        if state.dice.f64() < state.manners.slow_replication {
            state.seen.insert(number, now);
            let takes = match state.manners.hung_replication {
                true => HUNG,
                false => REPLICATION.mul_f64(state.dice.f64()),
            };
            return Arrived::Replicating { write: number, version, collection: name, term, takes };
        }
        document.acknowledge(document.dirty.len() - 1);
        answered(Outcome::Applied(version))
    }

    /// Acknowledges a write, because every copy has it.
    ///
    /// Fails if the primary crashed or the index was dropped in the meantime.
    fn replicated(
        &self,
        key: &Key,
        write: u64,
        version: Version,
        name: &str,
        term: u64,
    ) -> Outcome {
        let mut state = self.state.lock();
        let lost = || Outcome::Unknown("the connection was reset".to_owned());
        state.seen.remove(&write);
        let Some(collection) = state.collections.get_mut(name) else { return lost() };
        // A dropped index acknowledges nothing, even if it was created again.
        if (collection.incarnation, collection.term) != (version.incarnation, term) {
            return lost();
        }
        let place = (key.id.clone(), key.routing.clone());
        if let Some(document) = collection.documents.get_mut(&place)
            && let Some(at) = document.dirty.iter().position(|dirty| dirty.write == write)
        {
            document.acknowledge(at);
        }
        // Not in the list: a later write was acknowledged first, and replaced this one.
        Outcome::Applied(version)
    }

    /// Carries a write out, and answers for its last try.
    async fn carry_out(&self, write: &Write) -> Outcome {
        let again = self.state.lock().sent_again(write);
        let Some(Again { answer, after }) = again else { return self.try_once(write).await };
        if after == Duration::ZERO {
            return match self.try_once(write).await {
                invalid @ Outcome::Invalid(_) => invalid,
                _ => answer,
            };
        }
        if let Some(this) = self.this.upgrade() {
            let write = write.clone();
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                this.try_once(&write).await;
            });
        }
        answer
    }

    async fn try_once(&self, write: &Write) -> Outcome {
        match self.arrive(write) {
            Arrived::Answered(outcome) => outcome,
            Arrived::Replicating { write: number, version, collection, term, takes } => {
                tokio::time::sleep(takes).await;
                self.replicated(&write.key, number, version, &collection, term)
            }
        }
    }

    async fn bulk(&self, writes: &[Write]) -> Vec<Outcome> {
        let order = self.state.lock().order(writes);
        let mut outcomes = match order {
            None => futures::future::join_all(writes.iter().map(|w| self.write_slowly(w))).await,
            Some(order) => {
                let mut outcomes = vec![None; writes.len()];
                for at in order {
                    outcomes[at] = Some(self.write_slowly(&writes[at]).await);
                    let pause = self.state.lock().dice.u64(..3);
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
                outcomes.into_iter().flatten().collect()
            }
        };
        if let Some(length) = self.state.lock().cut(outcomes.len()) {
            outcomes.truncate(length);
        }
        outcomes
    }

    fn read_now(&self, keys: &[Key], primary: bool) -> Vec<Read> {
        let mut state = self.state.lock();
        let mut reads: Vec<Read> = keys.iter().map(|key| state.read(key, primary)).collect();
        if let Some(length) = state.cut(reads.len()) {
            reads.truncate(length);
        }
        reads
    }
}

const CLOSED: &str = "index_closed_exception";

fn out_of_reach(name: &str, reach: Reach) -> Result<(), StoreError> {
    match reach {
        Reach::Open => Ok(()),
        Reach::Closed => Err(StoreError::new(StoreErrorKind::Unavailable, CLOSED)),
        Reach::Unknown => Err(embedded::not_found(name)),
    }
}

/// An internal repetition: its answer, and the delay of the first try.
struct Again {
    answer: Outcome,
    after: Duration,
}

impl State {
    fn sent_again(&mut self, write: &Write) -> Option<Again> {
        let Manners { sent_again, sent_and_missed, .. } = self.manners;
        if sent_again + sent_and_missed <= 0.0 || !write.op.changes() {
            return None;
        }
        let drawn = self.dice.f64();
        let refused = |why: &str| Outcome::RejectedInDoubt(why.to_owned());
        let answer = match self.dice.u8(..4) {
            _ if drawn >= sent_again + sent_and_missed => return None,
            _ if drawn >= sent_again => Outcome::MissingCollection,
            0 => refused("es_rejected_execution_exception"),
            1 => refused("cluster_block_exception"),
            2 => refused(CLOSED),
            _ => Outcome::Conflict,
        };
        self.misdeeds.sent_again += 1;
        let late = self.dice.u8(..3) == 0;
        let after = if late { FIRST_TRY.mul_f64(self.dice.f64()) } else { Duration::ZERO };
        Some(Again { answer, after })
    }

    fn resolve(&self, name: &str) -> Option<Arc<str>> {
        let target = self.aliases.get(name).map(|(target, _)| target.clone());
        target.or_else(|| self.collections.get_key_value(name).map(|(name, _)| name.clone()))
    }

    fn existing(&mut self, name: &str) -> Result<&mut Collection, StoreError> {
        let found = self.resolve(name);
        let found = found
            .and_then(|name| self.collections.get_mut(&name))
            .ok_or_else(|| embedded::not_found(name))?;
        out_of_reach(name, found.reach)?;
        Ok(found)
    }

    /// Whether the node that is asked knows the alias.
    fn knows_alias(&mut self, alias: &str) -> bool {
        let Some((_, since)) = self.aliases.get(alias) else { return false };
        if since.elapsed() < NEWS && self.dice.f64() < self.manners.late_news {
            self.misdeeds.late_news += 1;
            return false;
        }
        true
    }

    fn read(&mut self, key: &Key, primary: bool) -> Read {
        if self.aliases.contains_key(&key.collection) && !self.knows_alias(&key.collection) {
            return Read::MissingCollection;
        }
        let lagging = !primary && self.dice.f64() < self.manners.lagging_copy;
        let Some(collection) = self.resolve(&key.collection) else {
            return Read::MissingCollection;
        };
        let Some(collection) = self.collections.get(&collection) else {
            return Read::MissingCollection;
        };
        match out_of_reach(&key.collection, collection.reach) {
            Ok(()) => {}
            Err(_) if collection.reach == Reach::Unknown => return Read::MissingCollection,
            Err(closed) => return Read::Unavailable(closed),
        }
        let place = (key.id.clone(), key.routing.clone());
        let Some(document) = collection.documents.get(&place) else { return Read::Absent };
        if lagging && !document.dirty.is_empty() {
            self.misdeeds.lagging += 1;
        }
        match if lagging { document.on_replica() } else { document.on_primary() } {
            Some((version, source)) => Read::Found { version, source: source.clone() },
            None => Read::Absent,
        }
    }

    /// Returns the length of an answer that ends early.
    fn cut(&mut self, items: usize) -> Option<usize> {
        if items == 0 || self.dice.f64() >= self.manners.short_answer {
            return None;
        }
        self.misdeeds.short += 1;
        Some(self.dice.usize(..items))
    }

    /// Returns a random order of the items of a bulk request. Writes to one document keep theirs.
    fn order(&mut self, writes: &[Write]) -> Option<Vec<usize>> {
        let distinct: BTreeSet<&Key> = writes.iter().map(|write| &write.key).collect();
        if writes.len() < 2
            || distinct.len() < writes.len()
            || self.dice.f64() >= self.manners.reordered
        {
            return None;
        }
        self.misdeeds.reordered += 1;
        let mut order: Vec<usize> = (0..writes.len()).collect();
        self.dice.shuffle(&mut order);
        Some(order)
    }
}

#[cfg(test)]
mod tests;
