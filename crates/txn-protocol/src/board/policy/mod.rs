//! The policy of one process: its wish, turns, polls and writes.

mod looks;
mod tickets;
#[cfg(feature = "testing")]
mod visit;

use std::collections::BTreeMap;
use std::time::Duration;

use txn_store::Version;

use super::document::{Entry, Node, Slot, Ticket};
use super::numbers::Numbers;
use super::order::heads;
use super::set::{DocumentSet, KeyHash};

/// The present work of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Work {
    /// The documents of waiting transactions, and of batches without a record.
    pub wanted: DocumentSet,
    /// Transactions that wait or run.
    pub clients: u32,
    /// The earliest wait of a transaction that another process passed over. The transaction lost a
    /// document to the other process.
    pub passed_over_since: Option<Duration>,
    /// Whether a batch without a record holds or requested a lock.
    pub is_locking: bool,
    /// Whether the process has a batch or unapplied work under way. Unapplied work is a commit or a
    /// release.
    pub is_under_way: bool,
}

/// A poll of the board: its first [`Policy::slots`] documents.
#[derive(Clone, Debug)]
pub struct Look {
    /// The decoded slots with their versions. A missing document is an empty slot without a
    /// version.
    pub slots: Vec<(Slot, Option<Version>)>,
    /// When the request was sent.
    pub sent_at: Duration,
}

/// A write of one slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BoardWrite {
    /// The number of the slot.
    pub number: usize,
    /// The content.
    pub slot: Slot,
    /// The version to replace, or none to create the document.
    pub over: Option<Version>,
}

/// The answer to a [`BoardWrite`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The slot now has this version.
    At(Version),
    /// Another process took the slot. The policy polls the board, and writes to another slot.
    Conflict,
    /// No answer. The policy polls the board before it writes again.
    Unknown,
}

/// The wish of another process, as polls showed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct OtherWish {
    ticket: Ticket,
    /// The time of the first poll that showed this ticket.
    since: Duration,
    /// Since when this ticket has its turn.
    head_since: Option<Duration>,
    is_skipped: bool,
}

/// The own wish.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Wish {
    entry: Entry,
    /// The first lock under this ticket.
    first_lock: Option<Duration>,
    has_committed: bool,
    /// Since when the wish has its turn and no lock.
    idle_head_since: Option<Duration>,
    has_arrived: bool,
    most_clients: u32,
}

/// The policy of one process. See the [module](super) for the rules.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    node: Node,
    numbers: Numbers,
    round_trip: Duration,
    /// Whether a request was measured; otherwise the round trip is a guess.
    is_measured: bool,
    /// Until when the process polls the board. `None` if the policy is dormant.
    engaged_until: Option<Duration>,
    /// The slots by the last poll or the last own write.
    slots: Vec<(Slot, Option<Version>)>,
    own_slot: Option<usize>,
    /// The wishes of the other processes.
    others: BTreeMap<Node, Entry>,
    looked_at: Option<Duration>,
    /// When a request for the board failed, if none succeeded since.
    failed_at: Option<Duration>,
    /// Since when the process is alone. The board shows no other process, and the process met none.
    alone_since: Option<Duration>,
    observed: BTreeMap<Node, OtherWish>,
    /// The other processes that have their turn before this one.
    heads: Vec<Node>,
    /// Whether one of `heads` shares a document with the own wish.
    is_blocked: bool,
    wish: Option<Wish>,
    last_ticket: Ticket,
    last_clients: u32,
    /// Since when the process ends its turn.
    yielding_since: Option<Duration>,
    wants_refresh: bool,
    is_looking: bool,
    must_look: bool,
    writing: Option<BoardWrite>,
    written_at: Option<Duration>,
    /// The first and the last hand-off of the present series.
    ///
    /// In a series a lock of this process follows each commit of this process.
    handoffs: Option<(Duration, Duration)>,
    idle_since: Option<Duration>,
    work: Work,
}

impl Policy {
    /// The policy of a process that met no other process. `round_trip` is the first guess.
    #[must_use]
    pub fn new(node: Node, round_trip: Duration, numbers: Numbers) -> Self {
        Self {
            node,
            numbers,
            round_trip,
            is_measured: false,
            engaged_until: None,
            slots: Vec::new(),
            own_slot: None,
            others: BTreeMap::new(),
            looked_at: None,
            failed_at: None,
            alone_since: None,
            observed: BTreeMap::new(),
            heads: Vec::new(),
            is_blocked: false,
            wish: None,
            last_ticket: 0,
            last_clients: 0,
            yielding_since: None,
            wants_refresh: false,
            is_looking: false,
            must_look: false,
            writing: None,
            written_at: None,
            handoffs: None,
            idle_since: None,
            work: Work::default(),
        }
    }

    /// Whether the policy is dormant. The process conflicted with no other process lately.
    ///
    /// A dormant policy permits every lock and writes nothing. A dormant process polls the board
    /// only while it hands documents off.
    #[must_use]
    pub fn is_dormant(&self) -> bool {
        self.engaged_until.is_none()
    }

    /// Notes a conflict with another process.
    ///
    /// The other process held, changed or wounded a document or an attempt of this process.
    pub fn met_another(&mut self, now: Duration) {
        self.engaged_until = Some(now + self.numbers.dormant_after);
        self.alone_since = None;
    }

    /// Takes the duration of a request into the smoothed round trip.
    ///
    /// A longer first sample replaces the guess, as in RFC 6298. Otherwise a process in another
    /// region asks for turns that are too short for it, and takes ten seconds to learn its round
    /// trip. A later sample counts as at most four round trips: a single slow answer says little
    /// about the next.
    pub fn measure(&mut self, sample: Duration) {
        self.round_trip = match self.is_measured {
            true => {
                let most = self.round_trip * 4 + Duration::from_millis(1);
                (self.round_trip * 7 + sample.min(most)) / 8
            }
            false => self.round_trip.max(sample),
        };
        self.is_measured = true;
    }

    /// The smoothed round trip of the process.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// Notes that a poll was sent.
    pub fn look_sent(&mut self) {
        self.is_looking = true;
    }

    /// Notes that a poll has no answer.
    pub fn look_failed(&mut self, now: Duration) {
        self.is_looking = false;
        self.failed_at = Some(now);
    }

    /// Takes the answer to a poll. A poll that was sent before the last one is ignored.
    pub fn observe(&mut self, look: Look, now: Duration) {
        (self.is_looking, self.failed_at) = (false, None);
        if self.looked_at.is_some_and(|at| look.sent_at < at) {
            return;
        }
        // After a conflict the poll counts, even if it shows an earlier ticket: the board lost an
        // acknowledged write.
        let was_refused = std::mem::take(&mut self.must_look);
        let own_slot = self.own_slot.filter(|_| !was_refused);
        let known = own_slot.and_then(|number| Some((number, self.slots.get(number)?.clone())));
        self.slots = look.slots;
        if let Some((number, known)) = known {
            self.keep_later(number, known, look.sent_at);
        }
        self.looked_at = Some(look.sent_at);
        self.note_entries(now);
        // The slot of a dead process stays until another process needs the slot.
        let is_alive = |observed: &OtherWish| now <= observed.since + self.numbers.dead_after;
        if !self.observed.values().any(is_alive) {
            self.alone_since.get_or_insert(now);
        } else if self.is_dormant() {
            self.met_another(now);
        } else {
            self.alone_since = None;
        }
        self.put_in_order(now);
    }

    /// Notes a hand-off between batches. A batch locked a document over the commit of another
    /// batch.
    ///
    /// A process that hands its documents off without a pause lets no other process lock them, and
    /// meets no other process. So a dormant process polls the board now and then while it hands
    /// documents off.
    pub fn handed_over(&mut self, now: Duration) {
        let since = match self.handoffs {
            Some((since, last)) if now < last + self.handoff_pause() => since,
            _ => now,
        };
        self.handoffs = Some((since, now));
    }

    /// Notes that a lock was written.
    pub fn locked(&mut self, now: Duration) {
        if let Some(wish) = &mut self.wish {
            wish.first_lock.get_or_insert(now);
        }
    }

    /// Notes a commit of a batch that has locks. The batch wrote, or locked its reads.
    pub fn committed(&mut self, now: Duration) {
        if let Some(wish) = &mut self.wish {
            wish.first_lock.get_or_insert(now);
            wish.has_committed = true;
        }
    }

    /// Decides everything that depends on time and on `work`.
    ///
    /// The engine calls this function after each of its events and at [`Self::next_look`].
    pub fn update(&mut self, work: Work, now: Duration) {
        if self.engaged_until.is_some_and(|until| now > until && self.wish.is_none()) {
            self.engaged_until = None;
        }
        if self.is_dormant() {
            return;
        }
        self.work = work;
        self.put_in_order(now);
        self.skip(now);
        self.note_idleness(now);
        let is_idle = self
            .idle_since
            .is_some_and(|since| now >= since + self.round_trip * self.numbers.idle_percent / 100);
        let is_shared = self.is_shared(now);
        let passed_over = self.work.passed_over_since.is_some_and(|since| {
            let grace =
                self.numbers.passed_over + self.round_trip * self.numbers.passed_over_round_trips;
            now >= since + grace
        });
        if is_shared || passed_over {
            self.engaged_until = Some(now + self.numbers.dormant_after);
        }
        self.note_arrival(now);
        match &self.wish {
            None => {
                self.yielding_since = None;
                // The first poll measures the round trip, and precedes each write of a wish.
                let is_polled = self.looked_at.is_some();
                if is_polled && !self.work.wanted.is_empty() && (is_shared || passed_over) {
                    self.take_ticket(now);
                }
            }
            Some(_) if is_idle => self.drop_wish(),
            Some(_) if self.must_renew(now) => self.take_ticket(now),
            Some(_) if self.is_over(now) => {
                if !is_shared {
                    self.drop_wish();
                } else if self.is_unfinished(now) && !self.yields_too_long(now) {
                    self.yielding_since.get_or_insert(now);
                } else {
                    self.take_ticket(now);
                }
            }
            Some(wish) if !wish.entry.set.covers(&self.work.wanted) => {
                if let Some(wish) = &mut self.wish {
                    wish.entry.set.unite(&self.work.wanted);
                }
            }
            Some(_) => {}
        }
        self.put_in_order(now);
    }

    /// Whether the process may lock the document now.
    #[must_use]
    pub fn may_lock(&self, document: KeyHash, now: Duration) -> bool {
        if self.is_dormant() || self.is_blind(now) {
            return true;
        }
        if self.is_wished(document) && (self.must_yield() || self.is_blocked) {
            return false;
        }
        let names = |node: &Node| {
            self.others.get(node).is_some_and(|entry| entry.set.may_contain(document))
        };
        if self.heads.iter().any(names) {
            return false;
        }
        !(self.must_yield() && self.live(now).any(|(_, entry)| entry.set.may_contain(document)))
    }

    /// Whether a lock on the document, or its commit, uses the turn.
    #[must_use]
    pub fn is_of_turn(&self, document: KeyHash) -> bool {
        !self.is_blocked && self.is_wished(document)
    }

    /// Whether the own wish names the document.
    #[must_use]
    pub fn is_wished(&self, document: KeyHash) -> bool {
        self.wish.as_ref().is_some_and(|wish| wish.entry.set.may_contain(document))
    }

    /// Whether there is an own wish.
    #[must_use]
    pub fn has_wish(&self) -> bool {
        self.wish.is_some()
    }

    /// Whether a poll or a write is under way.
    #[must_use]
    pub fn has_request(&self) -> bool {
        self.is_looking || self.writing.is_some()
    }

    /// Notes that no request under way will have an answer.
    pub fn requests_lost(&mut self) {
        self.is_looking = false;
        self.must_look |= self.writing.take().is_some();
    }

    /// The documents that other processes want, by the last poll. Each set is that of one wish.
    pub fn wanted_by_others(&self) -> impl Iterator<Item = &DocumentSet> {
        self.others.values().map(|entry| &entry.set)
    }

    /// The ticket of the own wish, if there is a wish.
    #[must_use]
    pub fn ticket(&self) -> Option<Ticket> {
        self.wish.as_ref().map(|wish| wish.entry.ticket)
    }

    /// Whether the turn is over.
    ///
    /// The process finishes its batches, applies everything and starts no batch.
    #[must_use]
    pub fn must_yield(&self) -> bool {
        self.yielding_since.is_some()
    }

    /// Whether the turn has begun since the last call.
    ///
    /// The process then refreshes documents that other wishes named. Until then it locks no
    /// document of its wish.
    pub fn take_arrival(&mut self) -> bool {
        std::mem::take(&mut self.wants_refresh)
    }

    /// Returns when time alone changes a decision, or a poll is due.
    #[must_use]
    pub fn next_change(&self, now: Duration) -> Option<Duration> {
        let look = self.next_look(now).map(|at| at.max(now));
        if self.is_dormant() {
            return look;
        }
        let passed_over = self.work.passed_over_since.map(|since| {
            since
                + self.numbers.passed_over
                + self.round_trip * self.numbers.passed_over_round_trips
        });
        let idle =
            self.idle_since.map(|since| since + self.round_trip * self.numbers.idle_percent / 100);
        let blind = self.looked_at.map(|at| at + self.blind_after());
        let wish = self.wish.as_ref();
        let over = wish.and_then(|wish| wish.first_lock).map(|at| at + self.own_turn(now));
        let renew = wish
            .and_then(|wish| wish.idle_head_since)
            .map(|at| at + self.patience(self.round_trip, now) / 2);
        let yielded = self.yielding_since.map(|at| at + self.patience(self.round_trip, now));
        let moment = Duration::from_micros(1);
        let idle = idle.filter(|_| wish.is_some());
        let later = [passed_over, idle, blind, over, renew, yielded];
        let later = later.into_iter().flatten().map(|at| at + moment).filter(|at| *at > now);
        later.chain(look).min()
    }

    // ---- The other processes

    /// The wishes of the other processes that count.
    fn live(&self, now: Duration) -> impl Iterator<Item = (Node, &Entry)> {
        let is_blind = self.is_blind(now);
        let counts = move |node: &Node| {
            !is_blind && !self.observed.get(node).is_some_and(|observed| observed.is_skipped)
        };
        self.others.iter().filter(move |(node, _)| counts(node)).map(|(n, e)| (*n, e))
    }

    /// Notes the wishes that a poll showed. Of two slots of one process the later ticket counts.
    fn note_entries(&mut self, now: Duration) {
        self.others.clear();
        let mut own_slot = None;
        for (number, (slot, _)) in self.slots.iter().enumerate() {
            match &slot.wish {
                Some((node, entry)) if *node != self.node => {
                    let other = self.others.entry(*node).or_insert_with(|| entry.clone());
                    if other.ticket < entry.ticket {
                        *other = entry.clone();
                    }
                }
                // The own slot may be empty. A write without an answer shows by the own wish in
                // another slot.
                Some(_) => own_slot = own_slot.or(Some(number)),
                None if self.own_slot == Some(number) => own_slot = Some(number),
                None => {}
            }
        }
        self.own_slot = own_slot;
        self.observed.retain(|node, _| self.others.contains_key(node));
        for (node, entry) in &self.others {
            let fresh =
                OtherWish { ticket: entry.ticket, since: now, head_since: None, is_skipped: false };
            let observed = self.observed.entry(*node).or_insert(fresh);
            if observed.ticket != entry.ticket {
                *observed = fresh;
            }
        }
    }

    /// Computes which other processes have their turn before this one.
    fn put_in_order(&mut self, now: Duration) {
        let own = self
            .wish
            .as_ref()
            .map_or((Ticket::MAX, self.node), |wish| (wish.entry.ticket, self.node));
        let earlier = self.live(now).filter(|(node, entry)| (entry.ticket, *node) < own);
        let heads = heads(earlier);
        let is_blocked = self.wish.as_ref().is_some_and(|wish| {
            heads.iter().any(|(_, entry)| entry.set.may_intersect(&wish.entry.set))
        });
        let heads: Vec<Node> = heads.into_iter().map(|(node, _)| node).collect();
        for (node, observed) in &mut self.observed {
            let is_head = heads.contains(node);
            if !is_head {
                observed.head_since = None;
            } else {
                observed.head_since.get_or_insert(now);
            }
        }
        (self.heads, self.is_blocked) = (heads, is_blocked);
    }

    /// Skips processes at the head that renew no ticket. Such a process took no new ticket for too
    /// long.
    fn skip(&mut self, now: Duration) {
        let Some(looked_at) = self.looked_at else { return };
        let is_late = |(node, observed): (&Node, &OtherWish)| {
            let round_trip = self.others.get(node)?.round_trip;
            let since = observed.head_since?;
            (looked_at > since + self.patience(round_trip, now)).then_some(*node)
        };
        let late: Vec<Node> = self.observed.iter().filter_map(is_late).collect();
        for node in &late {
            if let Some(observed) = self.observed.get_mut(node) {
                observed.is_skipped = true;
            }
        }
        if !late.is_empty() {
            self.put_in_order(now);
        }
    }

    /// Whether another process wants a document of this process.
    fn is_shared(&self, now: Duration) -> bool {
        self.live(now).any(|(_, entry)| {
            entry.set.may_intersect(&self.work.wanted)
                || self.wish.as_ref().is_some_and(|own| entry.set.may_intersect(&own.entry.set))
        })
    }

    // ---- The own wish

    fn note_idleness(&mut self, now: Duration) {
        if self.work.wanted.is_empty() && !self.work.is_under_way {
            self.idle_since.get_or_insert(now);
        } else {
            self.idle_since = None;
        }
    }

    /// Notes the start of the turn, and its time without a lock.
    fn note_arrival(&mut self, now: Duration) {
        let has_work = !self.work.wanted.is_empty();
        let is_locking = self.work.is_locking;
        let (is_blocked, clients) = (self.is_blocked, self.work.clients);
        let Some(wish) = &mut self.wish else { return };
        wish.most_clients = wish.most_clients.max(clients);
        let has_turn = !is_blocked && has_work && !wish.has_committed;
        if has_turn && !wish.has_arrived {
            wish.has_arrived = true;
            self.wants_refresh = true;
        }
        if has_turn && !(is_locking && wish.first_lock.is_some()) {
            wish.idle_head_since.get_or_insert(now);
        } else {
            wish.idle_head_since = None;
        }
    }

    /// Whether the process takes a new ticket before it is skipped. The turn of the process passes
    /// without a lock.
    ///
    /// The other processes would skip the old ticket.
    fn must_renew(&self, now: Duration) -> bool {
        let since = self.wish.as_ref().and_then(|wish| wish.idle_head_since);
        since.is_some_and(|since| now > since + self.patience(self.round_trip, now) / 2)
    }

    fn is_over(&self, now: Duration) -> bool {
        self.wish.as_ref().is_some_and(|wish| {
            let used = wish.first_lock.filter(|_| wish.has_committed);
            used.is_some_and(|at| self.must_yield() || now > at + self.own_turn(now))
        })
    }

    /// Whether the next process would meet work of this one.
    ///
    /// A slow process does not wait for its apply. A faster process rolls the commit forward in
    /// less time than a round trip of the slow one.
    fn is_unfinished(&self, now: Duration) -> bool {
        match self.is_slow(self.round_trip, now) {
            true => self.work.is_locking,
            false => self.work.is_under_way,
        }
    }

    /// Whether the other processes have skipped this one by now.
    fn yields_too_long(&self, now: Duration) -> bool {
        let patience = self.patience(self.round_trip, now);
        self.yielding_since.is_some_and(|since| now > since + patience)
    }

    /// Gives the wish up: the process has no work, or ends.
    pub fn drop_wish(&mut self) {
        self.yielding_since = None;
        self.last_clients = self.clients();
        self.wish = None;
    }
}
