//! The queue of transactions that wait for a group. No I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::mpsc;

use super::membership::SharedMembership;
use super::ticket::Reply;
use super::uses::{Collections, InUse, Uses};
use super::{AttemptNumbers, QueuePosition, SLOW};
use crate::attempt::Attempt;
use crate::config::WaitFor;
use crate::engine::Engine;
use crate::engine::hot::board::Wanted;
use crate::engine::hot::handoff::HandoffTable;
use crate::engine::lock_queue::LiveAttempts;
use crate::store::Key;
use txn_protocol::ids::Age;

/// The maximum number of groups of the same collections at once.
///
/// A group counts until its commit is acknowledged, or until it waits for a lock. With two groups,
/// the first commits while the second locks. More groups would be smaller, and each costs the
/// server its requests.
const SLOTS: usize = 2;

/// The same maximum with slow groups included.
const MOST_SLOTS: usize = 32;

/// The maximum number of members of a group.
const MOST_MEMBERS: usize = 128;

/// The maximum number of documents of a group.
///
/// A single transaction may have more.
const MOST_DOCUMENTS: usize = 512;

/// The maximum number of bytes that a group writes.
///
/// All of these bytes are in one record. A single transaction may write more.
pub(super) const MOST_BYTES: usize = 1 << 20;

/// A transaction that waits for a group.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) attempt: Arc<Attempt>,
    pub(super) attempts: AttemptNumbers,
    /// The documents that its last run used.
    pub(super) uses: Uses,
    /// The maximum number of members of its group, itself included.
    pub(super) max_members: usize,
    /// How often the transaction returned to the queue.
    pub(super) returns: u8,
    /// Whether a group of writers has passed over this read-only transaction.
    ///
    /// The group wrote only a part of the documents that the transaction reads.
    pub(super) passed_over: bool,
    pub(super) membership: SharedMembership,
    pub(super) reply_to: mpsc::UnboundedSender<Reply>,
    /// Names the documents on the board.
    pub(super) _wanted: Option<Wanted>,
    /// The runtime of the closure.
    pub(super) runtime: Handle,
    /// The runtime in which its groups form.
    pub(super) served_in: runtime::Id,
    pub(super) collections: Collections,
}

impl Waiter {
    pub(super) fn age(&self) -> Age {
        self.attempt.tid.age()
    }

    /// Whether the transaction may lock documents over unapplied commits.
    ///
    /// A transaction of one document commits without a lock.
    fn takes_handoffs(&self) -> bool {
        self.uses.len() > 1
    }

    pub(super) fn wait_for(&self) -> WaitFor {
        self.attempt.options.wait_for
    }

    /// Whether no other process has the turn at the documents.
    ///
    /// A read-only transaction locks nothing, so it needs no turn.
    fn may_lock(&self, engine: &Engine, now: Duration) -> bool {
        self.uses.only_reads() || engine.hot.board.may_lock(self.uses.keys(), now)
    }

    fn runs_in(&self, here: runtime::Id) -> bool {
        self.runtime.id() == here
    }
}

/// The transactions that are taken for one group.
#[derive(Debug, Default)]
struct Selection<'q> {
    taken: Vec<QueuePosition>,
    first: Option<&'q Waiter>,
    /// The smallest of the maximum numbers of members.
    most: Option<usize>,
    bytes: usize,
    documents: BTreeSet<&'q Key>,
    written: BTreeSet<&'q Key>,
    /// The documents of read-only members, which no later member may write.
    read_apart: BTreeSet<&'q Key>,
}

impl<'q> Selection<'q> {
    fn has_room_for(&self, next: &Waiter) -> bool {
        let is_like = |first: &Waiter| {
            first.wait_for() == next.wait_for()
                && self.bytes + next.attempt.bytes_to_write() <= MOST_BYTES
                && self.documents.len() + next.uses.len() <= MOST_DOCUMENTS
        };
        let most = self.most.unwrap_or(MOST_MEMBERS).min(next.max_members);
        self.first.is_none_or(is_like) && self.taken.len() < most
    }

    fn writes_reads_of(&self, next: &Waiter) -> bool {
        next.uses.read.iter().any(|key| self.written.contains(key))
    }

    fn add(&mut self, position: QueuePosition, next: &'q Waiter) {
        self.first.get_or_insert(next);
        self.most = Some(self.most.unwrap_or(MOST_MEMBERS).min(next.max_members));
        self.bytes += next.attempt.bytes_to_write();
        self.documents.extend(next.uses.keys());
        self.written.extend(&next.uses.written);
        if next.uses.only_reads() {
            self.read_apart.extend(&next.uses.read);
        }
        self.taken.push(position);
    }
}

/// A group slot that is taken.
#[derive(Debug)]
struct TakenSlot {
    collections: Collections,
    /// When the slot was taken, on the monotonic clock.
    since: Duration,
    /// The runtime in which the group forms; `None` with members.
    forming_in: Option<runtime::Id>,
}

impl TakenSlot {
    /// Whether the slot leaves its position to another group.
    fn is_slow(&self, now: Duration) -> bool {
        now.saturating_sub(self.since) >= SLOW
    }
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: BTreeMap<QueuePosition, Waiter>,
    /// The documents of running groups.
    ///
    /// Reads are in use until the commit is acknowledged, writes until they are applied.
    in_use: InUse,
    /// The slots that are taken.
    slots: BTreeMap<u64, TakenSlot>,
    arrivals: u64,
    next_slot: u64,
}

impl Queue {
    pub(super) fn enter(&mut self, waiter: Waiter) -> QueuePosition {
        let position = (waiter.age(), self.arrivals);
        self.arrivals += 1;
        self.enter_again(position, waiter);
        position
    }

    /// Returns a transaction to its earlier position.
    pub(super) fn enter_again(&mut self, position: QueuePosition, waiter: Waiter) {
        self.waiting.insert(position, waiter);
    }

    pub(super) fn leave(&mut self, position: QueuePosition) -> Option<Waiter> {
        self.waiting.remove(&position)
    }

    /// Gives a free slot to the oldest transaction that can start.
    ///
    /// Returns the number of the slot, and the runtime of that transaction.
    /// A group has callers of one runtime, because a resting runtime cannot run a closure again.
    ///
    /// `only`: the single position to check, because all other transactions were checked before.
    pub(super) fn take_slot(
        &mut self,
        now: Duration,
        only: Option<QueuePosition>,
        engine: &Engine,
    ) -> Option<(u64, Handle)> {
        let is_free = |next: &&Waiter| {
            self.has_slot_for(next, now)
                && self.in_use.allows(&next.uses, next.takes_handoffs(), &engine.hot.handoffs)
                && next.may_lock(engine, now)
        };
        let next = match only {
            Some(position) => self.waiting.get(&position).filter(is_free)?,
            None => self.waiting.values().find(is_free)?,
        };
        let (runtime, collections) = (next.runtime.clone(), next.collections.clone());
        let number = self.next_slot;
        self.next_slot += 1;
        let forming_in = Some(next.served_in);
        self.slots.insert(number, TakenSlot { collections, since: now, forming_in });
        Some((number, runtime))
    }

    /// Whether a slot is left for the collections of a transaction.
    ///
    /// No slot is given while another group of these collections forms.
    fn has_slot_for(&self, next: &Waiter, now: Duration) -> bool {
        let (mut taken, mut all) = (0, 0);
        for slot in self.slots.values() {
            let is_same = slot.collections == next.collections;
            let forms_here = slot.forming_in == Some(next.served_in);
            if is_same && (forms_here || slot.forming_in.is_some() && !slot.is_slow(now)) {
                return false;
            }
            taken += usize::from(is_same && !slot.is_slow(now));
            all += usize::from(is_same);
        }
        taken < SLOTS && all < MOST_SLOTS
    }

    /// Takes the members of the next group, and reserves their documents.
    ///
    /// Older transactions come first. A read-only transaction joins a group that writes all of its
    /// documents, because the locks of the group replace its validation. Otherwise the transaction
    /// stays apart from the writers of its documents, because its validation would delay them. A
    /// transaction that was passed over once blocks younger transactions, as a writer does.
    pub(super) fn take(
        &mut self,
        number: u64,
        here: runtime::Id,
        now: Duration,
        engine: &Engine,
    ) -> Vec<(QueuePosition, Waiter)> {
        let (live_attempts, handoffs) = (&*engine.live_attempts, &engine.hot.handoffs);
        let Some(slot) = self.slots.get(&number) else { return Default::default() };
        let collections = slot.collections.clone();
        let mut selection = Selection::default();
        let mut blocked = InUse::default();
        let (mut read_only, mut gone) = (Vec::new(), Vec::new());
        for (position, next) in &self.waiting {
            if next.reply_to.is_closed() {
                gone.push(*position);
                continue;
            }
            if next.attempt.ends_at() <= now {
                // The caller checks its deadline by itself, perhaps never. No other transaction
                // waits for that.
                continue;
            }
            let only_reads = next.uses.only_reads();
            if only_reads && !next.passed_over {
                read_only.push((*position, next));
                continue;
            }
            let is_free = match only_reads {
                true => self.is_readable(next, &selection, &blocked, live_attempts, handoffs),
                false => {
                    self.in_use.allows(&next.uses, next.takes_handoffs(), handoffs)
                        && !next.uses.written.iter().any(|key| selection.read_apart.contains(key))
                        && !blocked.conflicts_with(&next.uses)
                        && !live_attempts.is_wanted_by_older(next.uses.keys(), next.age())
                        && next.may_lock(engine, now)
                }
            };
            let is_here = next.runs_in(here) && next.collections == collections;
            if is_free && is_here && selection.has_room_for(next) {
                selection.add(*position, next);
            } else {
                blocked.add_use(&next.uses);
            }
        }
        let mut passed_over = Vec::new();
        for (position, next) in read_only {
            let is_free = self.is_readable(next, &selection, &blocked, live_attempts, handoffs);
            let is_here = next.runs_in(here) && next.collections == collections;
            if is_free && is_here && selection.has_room_for(next) {
                selection.add(position, next);
            } else if selection.writes_reads_of(next) {
                passed_over.push(position);
            }
        }
        let taken = selection.taken;
        for position in gone {
            self.leave(position);
        }
        for position in passed_over {
            if let Some(next) = self.waiting.get_mut(&position) {
                next.passed_over = true;
            }
        }
        let taken: Vec<_> = taken
            .into_iter()
            .filter_map(|position| Some((position, self.leave(position)?)))
            .collect();
        if !taken.is_empty()
            && let Some(slot) = self.slots.get_mut(&number)
        {
            slot.forming_in = None;
        }
        taken.iter().for_each(|(_, next)| self.in_use.add_use(&next.uses));
        taken
    }

    /// Whether a read-only transaction may join the selection.
    fn is_readable(
        &self,
        next: &Waiter,
        selection: &Selection<'_>,
        blocked: &InUse,
        live_attempts: &LiveAttempts,
        handoffs: &HandoffTable,
    ) -> bool {
        let is_locked = |key: &&Key| selection.written.contains(*key);
        let mut others = next.uses.read.iter().filter(|key| !is_locked(key)).peekable();
        others.peek().is_none()
            || !blocked.conflicts_with(&next.uses)
                && !live_attempts.is_wanted_by_older(&next.uses.read, next.age())
                && !selection.writes_reads_of(next)
                && others.all(|key| !self.in_use.is_written(key) && !handoffs.contains(key))
    }

    /// Whether a running group writes one of these documents.
    pub(super) fn is_any_written(&self, keys: &BTreeSet<Key>) -> bool {
        keys.iter().any(|key| self.in_use.is_written(key))
    }

    /// The documents of the waiting transactions that write.
    pub(super) fn documents(&self) -> BTreeSet<Key> {
        let writers = self.waiting.values().filter(|next| !next.uses.only_reads());
        writers.flat_map(|next| next.uses.keys()).cloned().collect()
    }

    pub(super) fn is_slot_taken(&self, number: u64) -> bool {
        self.slots.contains_key(&number)
    }

    /// Frees a slot. Returns whether the slot had taken transactions.
    ///
    /// Then other transactions may be able to start.
    pub(super) fn free_slot(&mut self, number: u64) -> bool {
        self.slots.remove(&number).is_some_and(|slot| slot.forming_in.is_none())
    }

    /// Takes back the documents that no transaction uses, and returns them.
    pub(super) fn reclaim(&mut self, mut keys: BTreeSet<Key>) -> Uses {
        keys.retain(|key| self.in_use.is_free(key));
        let uses = Uses { written: keys, ..Uses::default() };
        self.in_use.add_use(&uses);
        uses
    }

    pub(super) fn free(&mut self, uses: &Uses) {
        self.in_use.remove_use(uses);
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
