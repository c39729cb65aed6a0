//! The policy of one process: its wish, its turns, its looks at the board and its writes.

use std::collections::BTreeMap;
use std::time::Duration;

use txn_store::Version;

use super::document::{Entry, LAST_TICKET, MOST_SLOTS, Node, Slot, Ticket, micros};
use super::numbers::Numbers;
use super::order::heads;
use super::set::{DocumentSet, KeyHash};

/// What the process is about, as of one moment.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// The documents of all transactions that wait, and of batches without a record.
    pub wanted: DocumentSet,
    /// Transactions that wait or run.
    pub clients: u32,
    /// Since when a transaction waits that lost a document to another process: the earliest such time.
    pub passed_over_since: Option<Duration>,
    /// Whether a batch without a record holds a lock, or has requested one.
    pub is_locking: bool,
    /// Whether a batch is under way, or a commit or a release is not applied yet.
    pub is_under_way: bool,
}

/// One look at the board: its first [`Policy::slots`] documents.
#[derive(Clone, Debug)]
pub struct Look {
    /// The decoded slots with their versions. A missing document is an empty slot without a version.
    pub slots: Vec<(Slot, Option<Version>)>,
    /// When the request was sent.
    pub sent_at: Duration,
}

/// A write of one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Another process took the slot. The policy looks, and writes to another slot.
    Conflict,
    /// No answer. The policy looks before it writes again.
    Unknown,
}

/// What the process observed about another process.
#[derive(Clone, Copy, Debug)]
struct Observed {
    ticket: Ticket,
    /// When a look first showed this ticket.
    since: Duration,
    /// Since when this ticket has its turn.
    head_since: Option<Duration>,
    is_skipped: bool,
}

/// The own wish.
#[derive(Clone, Debug)]
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
#[derive(Clone, Debug)]
pub struct Policy {
    node: Node,
    numbers: Numbers,
    round_trip: Duration,
    /// Until when the process looks at the board; none in a process that met no other.
    engaged_until: Option<Duration>,
    /// The slots as the last look or the last own write showed them.
    slots: Vec<(Slot, Option<Version>)>,
    own_slot: Option<usize>,
    /// The wishes of the other processes.
    others: BTreeMap<Node, Entry>,
    looked_at: Option<Duration>,
    observed: BTreeMap<Node, Observed>,
    /// The other processes that have their turn before this one.
    heads: Vec<Node>,
    /// Whether one of `heads` shares a document with the own wish.
    is_blocked: bool,
    wish: Option<Wish>,
    last_ticket: Ticket,
    last_clients: u32,
    is_yielding: bool,
    wants_refresh: bool,
    is_looking: bool,
    must_look: bool,
    writing: Option<BoardWrite>,
    written_at: Option<Duration>,
    /// Since when each commit of this process was followed by a lock of this process, and the last of these.
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
            engaged_until: None,
            slots: Vec::new(),
            own_slot: None,
            others: BTreeMap::new(),
            looked_at: None,
            observed: BTreeMap::new(),
            heads: Vec::new(),
            is_blocked: false,
            wish: None,
            last_ticket: 0,
            last_clients: 0,
            is_yielding: false,
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

    /// Whether the policy has nothing to do: the process met no other process lately.
    ///
    /// The engine of a dormant process calls nothing but [`Self::met_another`] and [`Self::measure`].
    #[must_use]
    pub fn is_dormant(&self) -> bool {
        self.engaged_until.is_none()
    }

    /// Another process held, changed or wounded something of this process.
    pub fn met_another(&mut self, now: Duration) {
        self.engaged_until = Some(now + self.numbers.dormant_after);
    }

    /// Takes the duration of a request into the smoothed round trip.
    pub fn measure(&mut self, round_trip: Duration) {
        self.round_trip = (self.round_trip * 7 + round_trip) / 8;
    }

    /// The smoothed round trip of the process.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// Notes that a look was sent.
    pub fn look_sent(&mut self) {
        self.is_looking = true;
    }

    /// Notes that a look has no answer.
    pub fn look_failed(&mut self) {
        self.is_looking = false;
    }

    /// Takes in a look. A look that was sent before the last one is ignored.
    pub fn observe(&mut self, look: Look, now: Duration) {
        self.is_looking = false;
        if self.looked_at.is_some_and(|at| look.sent_at < at) {
            return;
        }
        self.must_look = false;
        let known = self.own_slot.and_then(|number| Some((number, self.slots.get(number)?.clone())));
        self.slots = look.slots;
        if let Some((number, known)) = known {
            self.keep_later(number, known, look.sent_at);
        }
        self.looked_at = Some(look.sent_at);
        self.note_entries(now);
        if !self.others.is_empty() && self.is_dormant() {
            self.met_another(now);
        }
        self.put_in_order(now);
    }

    /// How many slots a look reads: those that wishes use, and two more.
    #[must_use]
    pub fn slots(&self) -> usize {
        let used = self.slots.iter().rposition(|(slot, _)| slot.wish.is_some());
        let own = self.own_slot.map_or(0, |number| number + 1);
        (used.map_or(0, |number| number + 1).max(own) + 2).min(MOST_SLOTS)
    }

    /// A batch locked a document over the commit of another batch of this process.
    ///
    /// A process that hands its documents over without a pause lets no other process lock them, and meets no other process. So a dormant
    /// process looks at the board now and then while it hands documents over.
    pub fn handed_over(&mut self, now: Duration) {
        let since = match self.handoffs {
            Some((since, last)) if now < last + self.numbers.handoff_pause => since,
            _ => now,
        };
        self.handoffs = Some((since, now));
    }

    /// A lock was written.
    pub fn locked(&mut self, now: Duration) {
        if let Some(wish) = &mut self.wish {
            wish.first_lock.get_or_insert(now);
        }
    }

    /// A transaction committed.
    pub fn committed(&mut self, now: Duration) {
        if let Some(wish) = &mut self.wish {
            wish.first_lock.get_or_insert(now);
            wish.has_committed = true;
        }
    }

    /// Decides everything that time and `work` decide. The engine calls it after each of its events and at [`Self::next_look`].
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
                self.is_yielding = false;
                if !self.work.wanted.is_empty() && (is_shared || passed_over) {
                    self.take_ticket(now);
                }
            }
            Some(_) if is_idle => self.drop_wish(),
            Some(_) if self.must_renew(now) => self.take_ticket(now),
            Some(_) if self.is_over(now) => {
                if !is_shared {
                    self.drop_wish();
                } else if if self.numbers.x[3] == 1 { self.work.is_locking } else { self.work.is_under_way } {
                    self.is_yielding = true;
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
        let is_own = self.wish.as_ref().is_some_and(|wish| wish.entry.set.may_contain(document));
        if is_own && (self.is_yielding || self.is_blocked) {
            return false;
        }
        let names = |node: &Node| {
            self.others.get(node).is_some_and(|entry| entry.set.may_contain(document))
        };
        if self.heads.iter().any(names) {
            return false;
        }
        !(self.is_yielding && self.live(now).any(|(_, entry)| entry.set.may_contain(document)))
    }

    /// The ticket of the own wish, if there is a wish.
    #[must_use]
    pub fn ticket(&self) -> Option<Ticket> {
        self.wish.as_ref().map(|wish| wish.entry.ticket)
    }

    /// Whether the turn is over: the process finishes its batches, applies everything and starts no batch.
    #[must_use]
    pub fn must_yield(&self) -> bool {
        self.is_yielding
    }

    /// Whether the turn has begun since the last call. The process then reads the cached documents that other wishes
    /// name, in one request beside its first batch.
    pub fn take_arrival(&mut self) -> bool {
        std::mem::take(&mut self.wants_refresh)
    }

    /// When to look at the board next: none while a look is under way or the process has no work.
    #[must_use]
    pub fn next_look(&self, now: Duration) -> Option<Duration> {
        if self.is_looking {
            return None;
        }
        if self.is_dormant() {
            let (since, last) = self.handoffs?;
            let pause = self.numbers.dormant_look;
            let due = self.looked_at.map_or(since, |at| at.max(since)) + pause;
            return (now < last + self.numbers.handoff_pause).then_some(due);
        }
        let has_work =
            !self.work.wanted.is_empty() || self.work.is_under_way || self.wish.is_some();
        if !(has_work || self.must_write()) {
            return None;
        }
        let Some(at) = self.looked_at else { return Some(now) };
        if self.must_look {
            return Some(now);
        }
        let ahead = self.wish.as_ref().map_or(0, |wish| {
            let own = (wish.entry.ticket, self.node);
            self.live(now)
                .filter(|(node, entry)| {
                    (entry.ticket, *node) < own && entry.set.may_intersect(&self.work.wanted)
                })
                .count()
        });
        let pause = match u32::try_from(ahead).unwrap_or(u32::MAX) {
            0 => self.numbers.look_pause,
            1 => self.round_trip / 4,
            ahead => self.turn(now).saturating_mul(ahead - 1) / 2,
        };
        let longest = self.numbers.blind_after / 4;
        Some(at + self.round_trip + pause.min(longest))
    }

    /// The slot to write now, if there is one. [`Self::written`] takes the answer.
    pub fn take_write(&mut self, now: Duration) -> Option<BoardWrite> {
        let may_write = self.writing.is_none() && !self.must_look && self.looked_at.is_some();
        if !may_write || !self.must_write() {
            return None;
        }
        let number = match self.own_slot {
            Some(number) => number,
            None => self.free_slot(now)?,
        };
        let wish = self.wish.as_ref().map(|wish| (self.node, wish.entry.clone()));
        let over = self.slots.get(number).and_then(|(_, version)| *version);
        let write = BoardWrite { number, slot: Slot { wish }, over };
        self.writing = Some(write.clone());
        Some(write)
    }

    /// Takes the answer to a write of the board.
    pub fn written(&mut self, answer: Written, now: Duration) {
        let Some(write) = self.writing.take() else { return };
        match answer {
            Written::At(version) => {
                if self.slots.len() <= write.number {
                    self.slots.resize(write.number + 1, (Slot::default(), None));
                }
                self.slots[write.number] = (write.slot, Some(version));
                (self.own_slot, self.written_at) = (Some(write.number), Some(now));
            }
            Written::Conflict | Written::Unknown => self.must_look = true,
        }
    }

    /// Until when nothing changes by time alone, if no look is due before.
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
        let moment = Duration::from_micros(1);
        let later = [passed_over, idle.filter(|_| wish.is_some()), blind, over, renew];
        let later = later.into_iter().flatten().map(|at| at + moment).filter(|at| *at > now);
        later.chain(look).min()
    }

    // ---- Time

    fn blind_after(&self) -> Duration {
        self.numbers.blind_after.max(self.round_trip * self.numbers.blind_round_trips)
    }

    fn is_blind(&self, now: Duration) -> bool {
        self.looked_at.is_none_or(|at| now > at + self.blind_after())
    }

    /// A full turn.
    fn turn(&self, now: Duration) -> Duration {
        let fastest = self.fastest(now);
        (fastest * self.numbers.turn_round_trips)
            .clamp(self.numbers.shortest_turn, self.numbers.longest_turn)
    }

    /// The own turn: the part of a full turn that corresponds to the clients.
    fn own_turn(&self, now: Duration) -> Duration {
        if self.numbers.x[2] == 1 { return self.turn(now); }
        let own = self.clients();
        let most = self.live(now).map(|(_, entry)| entry.clients).max().unwrap_or(1).max(own);
        let own_turn = self.turn(now).mul_f64(f64::from(own) / f64::from(most));
        if self.numbers.x[5] == 1 { return own_turn; }
        let stride = self.wish.as_ref().map_or(Ticket::MAX, |wish| wish.entry.stride);
        let share = stride as f64 / micros(self.turn(now)) as f64;
        own_turn.mul_f64(share.min(1.0))
    }

    /// How long others wait for a process at the head.
    fn patience(&self, round_trip: Duration, now: Duration) -> Duration {
        (self.turn(now) * self.numbers.patience_turns)
            .max(round_trip.saturating_mul(self.numbers.patience_round_trips))
    }

    fn fastest(&self, now: Duration) -> Duration {
        let others = self.live(now).map(|(_, entry)| entry.round_trip).min();
        others.map_or(self.round_trip, |others| others.min(self.round_trip))
    }

    fn clients(&self) -> u32 {
        let turn = self.wish.as_ref().map_or(self.last_clients, |wish| wish.most_clients);
        self.work.clients.max(turn).max(1)
    }

    // ---- The other processes

    /// The wishes of the other processes that count.
    fn live(&self, now: Duration) -> impl Iterator<Item = (Node, &Entry)> {
        let is_blind = self.is_blind(now);
        let counts = move |node: &Node| {
            !is_blind
                && !self.observed.get(node).is_some_and(|observed| observed.is_skipped)
        };
        self.others.iter().filter(move |(node, _)| counts(node)).map(|(n, e)| (*n, e))
    }

    /// The own slot changes by own writes only: a look that was sent before the last one was answered may show less.
    fn keep_later(&mut self, number: usize, known: (Slot, Option<Version>), sent_at: Duration) {
        let ticket = |slot: &Slot| match &slot.wish {
            Some((node, entry)) if *node == self.node => Some(entry.ticket),
            _ => None,
        };
        if self.slots.len() <= number {
            self.slots.resize(number + 1, (Slot::default(), None));
        }
        let is_earlier = ticket(&self.slots[number].0)
            .is_some_and(|shown| ticket(&known.0).is_some_and(|own| shown < own));
        if is_earlier || self.written_at.is_some_and(|at| sent_at < at) {
            self.slots[number] = known;
        }
    }

    /// Notes the wishes that a look showed. Of two slots of one process the later ticket counts.
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
                // The own slot may be empty. A write without an answer shows by the own wish in another slot.
                Some(_) => own_slot = own_slot.or(Some(number)),
                None if self.own_slot == Some(number) => own_slot = Some(number),
                None => {}
            }
        }
        self.own_slot = own_slot;
        self.observed.retain(|node, _| self.others.contains_key(node));
        for (node, entry) in &self.others {
            let fresh = Observed {
                ticket: entry.ticket,
                since: now,
                head_since: None,
                is_skipped: false,
            };
            let observed = self.observed.entry(*node).or_insert(fresh);
            if observed.ticket != entry.ticket {
                *observed = fresh;
            }
        }
    }

    /// The first slot without a wish, or with one of a process that is dead.
    fn free_slot(&self, now: Duration) -> Option<usize> {
        let is_free = |(slot, _): &(Slot, Option<Version>)| {
            slot.wish.as_ref().is_none_or(|(node, _)| {
                *node == self.node
                    || self.observed.get(node).is_some_and(|observed| {
                        now > observed.since + self.numbers.dead_after
                    })
            })
        };
        let number = self.slots.iter().position(is_free).unwrap_or(self.slots.len());
        (number < MOST_SLOTS).then_some(number)
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

    /// Skips each process at the head that took no new ticket for too long.
    fn skip(&mut self, now: Duration) {
        let Some(looked_at) = self.looked_at else { return };
        let is_late = |(node, observed): (&Node, &Observed)| {
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

    /// Notes whether the wish has its turn, and since when the wish has its turn without a lock.
    fn note_arrival(&mut self, now: Duration) {
        let has_work = !self.work.wanted.is_empty();
        let is_locking = self.work.is_locking;
        let (is_blocked, clients) = (self.is_blocked, self.work.clients);
        let Some(wish) = &mut self.wish else { return };
        wish.most_clients = wish.most_clients.max(clients);
        let has_turn = !is_blocked && has_work && !wish.has_committed;
        if has_turn && !wish.has_arrived {
            wish.has_arrived = true;
            self.wants_refresh = self.numbers.x[1] != 1;
        }
        if has_turn && !is_locking {
            wish.idle_head_since.get_or_insert(now);
        } else {
            wish.idle_head_since = None;
        }
    }

    /// A process at the head that cannot lock takes a new ticket before the others skip it.
    fn must_renew(&self, now: Duration) -> bool {
        if self.numbers.x[0] == 1 { return false; }
        let since = self.wish.as_ref().and_then(|wish| wish.idle_head_since);
        since.is_some_and(|since| now > since + self.patience(self.round_trip, now) / 2)
    }

    fn is_over(&self, now: Duration) -> bool {
        self.wish.as_ref().is_some_and(|wish| {
            let used = wish.first_lock.filter(|_| wish.has_committed);
            used.is_some_and(|at| self.is_yielding || now > at + self.own_turn(now))
        })
    }

    fn drop_wish(&mut self) {
        self.is_yielding = false;
        self.last_clients = self.clients();
        self.wish = None;
    }

    /// Takes a new ticket, at the end of a turn and for a first wish.
    fn take_ticket(&mut self, now: Duration) {
        let clients = self.clients();
        let stride = self.stride(clients, now);
        let start = self.virtual_time(now).max(self.last_ticket);
        let ticket = self.spaced(start.saturating_add(stride), stride, now);
        let set = match &self.wish {
            Some(wish) if self.work.wanted.is_empty() => wish.entry.set.clone(),
            _ => self.work.wanted.clone(),
        };
        self.is_yielding = false;
        self.last_clients = 0;
        if ticket > LAST_TICKET {
            self.wish = None;
            return;
        }
        self.last_ticket = ticket;
        self.wish = Some(Wish {
            entry: Entry { ticket, stride, clients, round_trip: self.round_trip, set },
            first_lock: None,
            has_committed: false,
            idle_head_since: None,
            has_arrived: false,
            most_clients: self.work.clients,
        });
    }

    /// The virtual time: the latest one at which another process took its ticket.
    fn virtual_time(&self, now: Duration) -> Ticket {
        let taken = self.live(now).map(|(_, entry)| entry.ticket.saturating_sub(entry.stride));
        taken.max().unwrap_or(0)
    }

    /// The next ticket at some distance from those of processes with about the same stride.
    ///
    /// Equal processes would otherwise have equal tickets, and a process with a smaller stride would get all its turns of a round
    /// before theirs, and would then wait for the whole round: p99 of a lone client beside four processes 26 times its p99
    /// alone, instead of 16.
    fn spaced(&self, ticket: Ticket, stride: Ticket, now: Duration) -> Ticket {
        let is_similar = |other: Ticket| other > stride / 2 && other / 2 < stride;
        let mut tickets: Vec<Ticket> = self
            .live(now)
            .filter(|(_, entry)| is_similar(entry.stride))
            .map(|(_, entry)| entry.ticket)
            .collect();
        tickets.sort_unstable();
        let gap = stride / (tickets.len() as Ticket + 1);
        tickets.into_iter().fold(ticket, |ticket, other| {
            if ticket.abs_diff(other) < gap / 2 { other.saturating_add(gap) } else { ticket }
        })
    }

    /// A process with few clients or long round trips gets as many turns as its share needs.
    fn stride(&self, clients: u32, now: Duration) -> Ticket {
        let count = |counts: &dyn Fn(&Entry) -> bool| {
            let others = self.live(now).filter(|(_, entry)| counts(entry)).count();
            u32::try_from(others).unwrap_or(u32::MAX).max(1)
        };
        let own = self.round_trip;
        let is_faster = |entry: &Entry| entry.round_trip * 2 < own;
        let larger =
            count(&|entry| entry.clients >= clients.saturating_mul(2) && !is_faster(entry));
        let share = self.turn(now) / if self.numbers.x[4] == 1 { 1 } else { larger };
        if own <= self.fastest(now).saturating_mul(self.numbers.slow_factor) {
            return micros(share);
        }
        let is_slow = |entry: &Entry| entry.round_trip > self.fastest(now).saturating_mul(self.numbers.slow_factor);
        let slow_ones = self.live(now).filter(|(_, entry)| is_slow(entry)).count() as u32 + 1;
        let slow = own * self.numbers.slow_stride_round_trips * slow_ones / count(&is_faster);
        micros(share.max(slow))
    }

    /// Whether the own slot shows something else than the own wish.
    fn must_write(&self) -> bool {
        let shown = self.own_slot.and_then(|number| self.slots.get(number));
        let shown = shown.and_then(|(slot, _)| slot.wish.as_ref()).map(|(_, entry)| entry);
        shown != self.wish.as_ref().map(|wish| &wish.entry)
    }
}
