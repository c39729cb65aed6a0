//! Who waits to be composed, and who has a turn. No I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::mpsc;

use super::application::Told;
use super::standing::SharedStanding;
use super::uses::{Collections, InUse, Uses};
use super::{Attempts, Place, SLOW};
use crate::attempt::Attempt;
use crate::config::Acknowledge;
use crate::engine::Engine;
use crate::engine::hot::board::Wanted;
use crate::engine::hot::handoff::HandoffTable;
use crate::engine::lock_queue::LiveAttempts;
use crate::store::Key;
use txn_protocol::ids::Age;

/// Groups of the same collections that are under way at once, until they are acknowledged: one is
/// locked while another commits. More would be smaller, and each costs the server its requests.
const TURNS: usize = 2;

/// The same, slow ones included.
const MOST_TURNS: usize = 32;

/// Most transactions of a group.
const MOST_MEMBERS: usize = 128;

/// Most documents of a group, unless a single transaction has more.
const MOST_DOCUMENTS: usize = 512;

/// Most bytes that a group writes, unless a single transaction writes more: all of it stands in one record.
pub(super) const MOST_BYTES: usize = 1 << 20;

/// A transaction that waits to be composed.
#[derive(Debug)]
pub(super) struct Applicant {
    pub(super) attempt: Arc<Attempt>,
    pub(super) attempts: Attempts,
    /// What it used in its last run.
    pub(super) uses: Uses,
    /// It goes with so many at most, itself included.
    pub(super) most: usize,
    /// How often it came back into the queue.
    pub(super) returns: u8,
    /// It only reads, and others were taken who write a part of that.
    pub(super) passed_over: bool,
    pub(super) standing: SharedStanding,
    pub(super) tell: mpsc::UnboundedSender<Told>,
    /// Names its documents to the board.
    pub(super) _wanted: Option<Wanted>,
    /// Where its closure runs.
    pub(super) runtime: Handle,
    /// Where its groups are composed.
    pub(super) served_in: runtime::Id,
    pub(super) collections: Collections,
}

impl Applicant {
    pub(super) fn age(&self) -> Age {
        self.attempt.tid.age()
    }

    /// Whether it may lock documents over the commits of earlier groups. One document is committed
    /// without a lock.
    fn takes_handoffs(&self) -> bool {
        self.uses.len() > 1
    }

    pub(super) fn acknowledge(&self) -> Acknowledge {
        self.attempt.options.acknowledge
    }

    /// Whether it is not the turn of another process at its documents. A transaction that only
    /// reads locks nothing.
    fn may_lock(&self, engine: &Engine, now: Duration) -> bool {
        self.uses.only_reads() || engine.hot.board.may_lock(self.uses.keys(), now)
    }

    fn may_go(&self, here: runtime::Id) -> bool {
        self.runtime.id() == here
    }
}

/// Those who are taken together.
#[derive(Debug, Default)]
struct Batch<'q> {
    taken: Vec<Place>,
    first: Option<&'q Applicant>,
    /// So many at most, as each of them wants it.
    most: Option<usize>,
    bytes: usize,
    documents: BTreeSet<&'q Key>,
    written: BTreeSet<&'q Key>,
    /// Read by those who go apart from those who write them.
    apart: BTreeSet<&'q Key>,
}

impl<'q> Batch<'q> {
    fn has_room_for(&self, next: &Applicant) -> bool {
        let is_like = |first: &Applicant| {
            first.acknowledge() == next.acknowledge()
                && self.bytes + next.attempt.bytes_to_write() <= MOST_BYTES
                && self.documents.len() + next.uses.len() <= MOST_DOCUMENTS
        };
        let most = self.most.unwrap_or(MOST_MEMBERS).min(next.most);
        self.first.is_none_or(is_like) && self.taken.len() < most
    }

    fn writes_what_it_reads(&self, next: &Applicant) -> bool {
        next.uses.read.iter().any(|key| self.written.contains(key))
    }

    fn add(&mut self, place: Place, next: &'q Applicant) {
        self.first.get_or_insert(next);
        self.most = Some(self.most.unwrap_or(MOST_MEMBERS).min(next.most));
        self.bytes += next.attempt.bytes_to_write();
        self.documents.extend(next.uses.keys());
        self.written.extend(&next.uses.written);
        if next.uses.only_reads() {
            self.apart.extend(&next.uses.read);
        }
        self.taken.push(place);
    }
}

/// A turn that is taken.
#[derive(Debug)]
struct TurnOf {
    collections: Collections,
    /// When it was given, on the monotonic clock.
    since: Duration,
    /// The runtime in which its group is composed, until the turn has members.
    called_in: Option<runtime::Id>,
}

impl TurnOf {
    /// Whether it leaves its place to another one.
    fn is_slow(&self, now: Duration) -> bool {
        now.saturating_sub(self.since) >= SLOW
    }
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: BTreeMap<Place, Applicant>,
    /// By groups under way: what is read until they are acknowledged, what is written until it is applied.
    in_use: InUse,
    /// The turns that are taken.
    turns: BTreeMap<u64, TurnOf>,
    arrivals: u64,
    next_turn: u64,
}

impl Queue {
    pub(super) fn enter(&mut self, applicant: Applicant) -> Place {
        let place = (applicant.age(), self.arrivals);
        self.arrivals += 1;
        self.enter_again(place, applicant);
        place
    }

    /// Back to where it was.
    pub(super) fn enter_again(&mut self, place: Place, applicant: Applicant) {
        self.waiting.insert(place, applicant);
    }

    pub(super) fn leave(&mut self, place: Place) -> Option<Applicant> {
        self.waiting.remove(&place)
    }

    /// Gives a turn to a transaction that is free, if a turn is left. Returns the number of the
    /// turn, and the runtime of the transaction that has waited longest. A group has callers of one
    /// runtime, because a resting runtime cannot run a closure again.
    ///
    /// `only`: nobody else is looked at, for all others were, and were not free.
    pub(super) fn call(
        &mut self,
        now: Duration,
        only: Option<Place>,
        engine: &Engine,
    ) -> Option<(u64, Handle)> {
        let is_free = |next: &&Applicant| {
            self.has_turn_for(next, now)
                && self.in_use.allows(&next.uses, next.takes_handoffs(), &engine.hot.handoffs)
                && next.may_lock(engine, now)
        };
        let next = match only {
            Some(place) => self.waiting.get(&place).filter(is_free)?,
            None => self.waiting.values().find(is_free)?,
        };
        let (runtime, collections) = (next.runtime.clone(), next.collections.clone());
        let number = self.next_turn;
        self.next_turn += 1;
        let called_in = Some(next.served_in);
        self.turns.insert(number, TurnOf { collections, since: now, called_in });
        Some((number, runtime))
    }

    /// Whether a turn is left for the collections of a transaction, and none is about to take it.
    fn has_turn_for(&self, next: &Applicant, now: Duration) -> bool {
        let (mut taken, mut all) = (0, 0);
        for turn in self.turns.values() {
            let is_same = turn.collections == next.collections;
            let rests = turn.called_in == Some(next.served_in);
            if is_same && (rests || turn.called_in.is_some() && !turn.is_slow(now)) {
                return false;
            }
            taken += usize::from(is_same && !turn.is_slow(now));
            all += usize::from(is_same);
        }
        taken < TURNS && all < MOST_TURNS
    }

    /// Takes those whose turn it is, oldest first; their documents are in use from here on.
    ///
    /// Who only reads goes with those who write all that it read, for their locks tell what it would have to look for; or else apart
    /// from those who write, whom it would hold up. Passed over once, it holds those up who are younger, as everybody does.
    pub(super) fn take(
        &mut self,
        number: u64,
        here: runtime::Id,
        now: Duration,
        engine: &Engine,
    ) -> Vec<(Place, Applicant)> {
        let (live_attempts, handoffs) = (&*engine.live_attempts, &engine.hot.handoffs);
        let Some(turn) = self.turns.get(&number) else { return Default::default() };
        let collections = turn.collections.clone();
        let mut batch = Batch::default();
        let mut blocked = InUse::default();
        let (mut patient, mut gone) = (Vec::new(), Vec::new());
        for (place, next) in &self.waiting {
            if next.tell.is_closed() {
                gone.push(*place);
                continue;
            }
            if next.attempt.ends_at() <= now {
                // It is told so when it looks, which may be never: nobody waits for that.
                continue;
            }
            let only_reads = next.uses.only_reads();
            if only_reads && !next.passed_over {
                patient.push((*place, next));
                continue;
            }
            let is_free = match only_reads {
                true => self.is_readable(next, &batch, &blocked, live_attempts, handoffs),
                false => {
                    self.in_use.allows(&next.uses, next.takes_handoffs(), handoffs)
                        && !next.uses.written.iter().any(|key| batch.apart.contains(key))
                        && !blocked.conflicts_with(&next.uses)
                        && !live_attempts.is_wanted_by_older(next.uses.keys(), next.age())
                        && next.may_lock(engine, now)
                }
            };
            let is_here = next.may_go(here) && next.collections == collections;
            if is_free && is_here && batch.has_room_for(next) {
                batch.add(*place, next);
            } else {
                blocked.begin(&next.uses);
            }
        }
        let mut passed_over = Vec::new();
        for (place, next) in patient {
            let is_free = self.is_readable(next, &batch, &blocked, live_attempts, handoffs);
            let is_here = next.may_go(here) && next.collections == collections;
            if is_free && is_here && batch.has_room_for(next) {
                batch.add(place, next);
            } else if batch.writes_what_it_reads(next) {
                passed_over.push(place);
            }
        }
        let taken = batch.taken;
        for place in gone {
            self.leave(place);
        }
        for place in passed_over {
            if let Some(next) = self.waiting.get_mut(&place) {
                next.passed_over = true;
            }
        }
        let taken: Vec<_> =
            taken.into_iter().filter_map(|place| Some((place, self.leave(place)?))).collect();
        if !taken.is_empty()
            && let Some(turn) = self.turns.get_mut(&number)
        {
            turn.called_in = None;
        }
        taken.iter().for_each(|(_, next)| self.in_use.begin(&next.uses));
        taken
    }

    /// Whether one who only reads may go with those who are taken.
    fn is_readable(
        &self,
        next: &Applicant,
        batch: &Batch<'_>,
        blocked: &InUse,
        live_attempts: &LiveAttempts,
        handoffs: &HandoffTable,
    ) -> bool {
        let is_locked = |key: &&Key| batch.written.contains(*key);
        let mut others = next.uses.read.iter().filter(|key| !is_locked(key)).peekable();
        others.peek().is_none()
            || !blocked.conflicts_with(&next.uses)
                && !live_attempts.is_wanted_by_older(&next.uses.read, next.age())
                && !batch.writes_what_it_reads(next)
                && others.all(|key| !self.in_use.is_written(key) && !handoffs.contains(key))
    }

    /// Whether somebody writes one of these now.
    pub(super) fn is_any_written(&self, keys: &BTreeSet<Key>) -> bool {
        keys.iter().any(|key| self.in_use.is_written(key))
    }

    /// The documents of the transactions that wait and write.
    pub(super) fn documents(&self) -> BTreeSet<Key> {
        let writers = self.waiting.values().filter(|next| !next.uses.only_reads());
        writers.flat_map(|next| next.uses.keys()).cloned().collect()
    }

    /// Whether a turn is taken.
    pub(super) fn has_turn(&self, number: u64) -> bool {
        self.turns.contains_key(&number)
    }

    /// Gives a turn back. Returns whether the turn took a transaction: others may be free now.
    pub(super) fn end_turn(&mut self, number: u64) -> bool {
        self.turns.remove(&number).is_some_and(|turn| turn.called_in.is_none())
    }

    /// Takes those of the documents back that no transaction uses. Returns them.
    pub(super) fn reclaim(&mut self, mut keys: BTreeSet<Key>) -> Uses {
        keys.retain(|key| self.in_use.is_free(key));
        let uses = Uses { written: keys, ..Uses::default() };
        self.in_use.begin(&uses);
        uses
    }

    pub(super) fn free(&mut self, uses: &Uses) {
        self.in_use.end(uses);
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
