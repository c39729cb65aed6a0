//! The queue of transactions that wait for a group. No I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::mpsc;

use super::caller::CallerMessage;
use super::membership::SharedMembership;
use super::uses::{CollectionSet, InUse, Uses};
use super::{AttemptNumbers, QueuePosition, SLOW};
use crate::attempt::Attempt;
use crate::config::WaitFor;
use crate::engine::Engine;
use crate::engine::hot::Hot;
use crate::engine::hot::board::Wanted;
use txn_protocol::ids::Age;
use txn_store::Key;

/// The maximum number of groups of the same collections at once.
///
/// A group counts until its commit is acknowledged, or until it waits for a lock. With two groups,
/// the first commits while the second locks. More groups would be smaller, and each costs the
/// server its requests.
const MOST_GROUPS: usize = 2;

/// The same maximum with slow groups included.
const MOST_WITH_SLOW_GROUPS: usize = 32;

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
    /// When the transaction last entered the queue, by the monotonic clock. A returned transaction
    /// enters the queue again.
    pub(super) waits_since: Duration,
    /// Whether a group of writers has passed over this read-only transaction.
    ///
    /// The group wrote only a part of the documents that the transaction reads.
    pub(super) passed_over: bool,
    pub(super) membership: SharedMembership,
    pub(super) reply_to: mpsc::UnboundedSender<CallerMessage>,
    /// Names the documents on the board.
    pub(super) _wanted: Option<Wanted>,
    /// The runtime of the closure.
    pub(super) runtime: Handle,
    /// The runtime in which its groups form.
    pub(super) served_in: runtime::Id,
    pub(super) collections: CollectionSet,
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
    fn may_lock(&self, hot: &Hot, now: Duration) -> bool {
        self.uses.only_reads() || hot.board.may_lock(self.uses.keys(), now)
    }

    fn runs_in(&self, here: runtime::Id) -> bool {
        self.runtime.id() == here
    }
}

/// The group for which the queue selects members.
struct NextGroup<'e> {
    collections: CollectionSet,
    /// The runtime of the callers.
    here: runtime::Id,
    now: Duration,
    hot: &'e Hot,
}

impl NextGroup<'_> {
    /// Whether a transaction can join a group with these members.
    fn has_room_for(&self, next: &Waiter, members: &Selection<'_>) -> bool {
        next.runs_in(self.here)
            && next.collections == self.collections
            && members.has_room_for(next)
    }
}

/// The result of a selection.
#[derive(Default)]
struct Selected {
    members: Vec<QueuePosition>,
    /// The read-only transactions that the group passes over.
    passed_over: Vec<QueuePosition>,
    /// The transactions whose callers are gone.
    abandoned: Vec<QueuePosition>,
}

/// The members that are selected for a group so far.
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

/// A permit that a group has.
#[derive(Debug)]
struct GrantedPermit {
    collections: CollectionSet,
    /// When the group got the permit, on the monotonic clock.
    since: Duration,
    /// The runtime in which the group forms; `None` with members.
    forming_in: Option<runtime::Id>,
}

impl GrantedPermit {
    /// Whether the group is slow, so that another group may start.
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
    /// The permits of running groups, by number.
    permits: BTreeMap<u64, GrantedPermit>,
    arrivals: u64,
    next_permit: u64,
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

    /// The number of waiting transactions.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn leave(&mut self, position: QueuePosition) -> Option<Waiter> {
        self.waiting.remove(&position)
    }

    /// Returns a document that a running group uses, or any document.
    ///
    /// The documents are those of `uses`.
    pub(super) fn one_in_use<'u>(&self, uses: &'u Uses) -> Option<&'u Key> {
        self.in_use.blocking(uses).next().or_else(|| uses.keys().next())
    }

    /// Grants a permit to the oldest transaction that can start.
    ///
    /// Returns the number of the permit, and the runtime of that transaction.
    /// A group has callers of one runtime, because a resting runtime cannot run a closure again.
    ///
    /// `only`: the single position to check, because all other transactions were checked before.
    pub(super) fn grant_permit(
        &mut self,
        now: Duration,
        only: Option<QueuePosition>,
        engine: &Engine,
    ) -> Option<(u64, Handle)> {
        let is_free = |next: &&Waiter| {
            self.has_permit_for(next, now)
                && self.in_use.allows(&next.uses, next.takes_handoffs(), &engine.hot.handoffs)
                && next.may_lock(&engine.hot, now)
        };
        let next = match only {
            Some(position) => self.waiting.get(&position).filter(is_free)?,
            None => self.waiting.values().find(is_free)?,
        };
        let (runtime, collections) = (next.runtime.clone(), next.collections.clone());
        let number = self.next_permit;
        self.next_permit += 1;
        let forming_in = Some(next.served_in);
        self.permits.insert(number, GrantedPermit { collections, since: now, forming_in });
        Some((number, runtime))
    }

    /// Whether a permit is left for the collections of a transaction.
    ///
    /// No permit is granted while another group of these collections forms.
    fn has_permit_for(&self, next: &Waiter, now: Duration) -> bool {
        let (mut taken, mut all) = (0, 0);
        for permit in self.permits.values() {
            let is_same = permit.collections == next.collections;
            let forms_here = permit.forming_in == Some(next.served_in);
            if is_same && (forms_here || permit.forming_in.is_some() && !permit.is_slow(now)) {
                return false;
            }
            taken += usize::from(is_same && !permit.is_slow(now));
            all += usize::from(is_same);
        }
        taken < MOST_GROUPS && all < MOST_WITH_SLOW_GROUPS
    }

    /// Takes the members of the next group, and reserves their documents.
    ///
    /// Without members the permit is returned.
    ///
    /// Older transactions come first. A read-only transaction joins a group that writes all of its
    /// documents, because the locks of the group replace its validation. Otherwise the transaction
    /// stays apart from the writers of its documents, because its validation would delay them. A
    /// transaction that was passed over once blocks younger transactions, as a writer does.
    pub(super) fn take_members(
        &mut self,
        permit: u64,
        here: runtime::Id,
        now: Duration,
        engine: &Engine,
    ) -> Vec<(QueuePosition, Waiter)> {
        let Some(granted) = self.permits.get(&permit) else { return Default::default() };
        let collections = granted.collections.clone();
        let selected = self.select(&NextGroup { collections, here, now, hot: &engine.hot });
        for position in selected.abandoned {
            self.leave(position);
        }
        for position in selected.passed_over {
            if let Some(next) = self.waiting.get_mut(&position) {
                next.passed_over = true;
            }
        }
        let taken = selected.members.into_iter();
        let members: Vec<_> =
            taken.filter_map(|position| Some((position, self.leave(position)?))).collect();
        for (_, next) in &members {
            next.attempt.exclude_wait(now.saturating_sub(next.waits_since));
        }
        if members.is_empty() {
            // In the same critical section as the selection. A document that becomes free later
            // starts a group, and no permit of a forming group may refuse that start.
            self.permits.remove(&permit);
        } else if let Some(granted) = self.permits.get_mut(&permit) {
            granted.forming_in = None;
        }
        members.iter().for_each(|(_, next)| self.in_use.add_use(&next.uses));
        members
    }

    /// Selects the members of a group, oldest first: writers, then read-only transactions.
    fn select(&self, group: &NextGroup<'_>) -> Selected {
        let mut selection = Selection::default();
        let mut blocked = InUse::default();
        let mut selected = Selected::default();
        let mut read_only = Vec::new();
        for (position, next) in &self.waiting {
            if next.reply_to.is_closed() {
                selected.abandoned.push(*position);
                continue;
            }
            if next.attempt.ends_at() <= group.now {
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
                true => self.is_readable(next, &selection, &blocked, group.hot),
                false => self.is_writable(next, &selection, &blocked, group),
            };
            if is_free && group.has_room_for(next, &selection) {
                selection.add(*position, next);
            } else if !self.waits_elsewhere(next, group) {
                blocked.add_use(&next.uses);
            }
        }
        for (position, next) in read_only {
            let is_free = self.is_readable(next, &selection, &blocked, group.hot);
            if is_free && group.has_room_for(next, &selection) {
                selection.add(position, next);
            } else if selection.writes_reads_of(next) {
                selected.passed_over.push(position);
            }
        }
        Selected { members: selection.taken, ..selected }
    }

    /// Whether a transaction waits for slow groups of other collections only.
    ///
    /// Such a transaction delays no younger one, because a slow or blocked index would otherwise
    /// stop documents of other indices.
    fn waits_elsewhere(&self, next: &Waiter, group: &NextGroup<'_>) -> bool {
        let is_slow = |key: &Key| {
            let mut slow = self.permits.values().filter(|permit| permit.is_slow(group.now));
            slow.any(|permit| permit.collections.contains(&key.collection))
        };
        let mut blocking = self.in_use.blocking(&next.uses).peekable();
        blocking.peek().is_some()
            && blocking.all(|key| !group.collections.contains(&key.collection) && is_slow(key))
    }

    /// Whether a read-only transaction may join the selection.
    fn is_readable(
        &self,
        next: &Waiter,
        selection: &Selection<'_>,
        blocked: &InUse,
        hot: &Hot,
    ) -> bool {
        let is_locked = |key: &&Key| selection.written.contains(*key);
        let mut others = next.uses.read.iter().filter(|key| !is_locked(key)).peekable();
        others.peek().is_none()
            || !blocked.conflicts_with(&next.uses)
                && !hot.lock_queues.is_wanted_by_older(&next.uses.read, next.age())
                && !selection.writes_reads_of(next)
                && others.all(|key| !self.in_use.is_written(key) && !hot.handoffs.contains(key))
    }

    /// Whether a transaction that writes may join the selection.
    fn is_writable(
        &self,
        next: &Waiter,
        selection: &Selection<'_>,
        blocked: &InUse,
        group: &NextGroup<'_>,
    ) -> bool {
        self.in_use.allows(&next.uses, next.takes_handoffs(), &group.hot.handoffs)
            && !next.uses.written.iter().any(|key| selection.read_apart.contains(key))
            && !blocked.conflicts_with(&next.uses)
            && !group.hot.lock_queues.is_wanted_by_older(next.uses.keys(), next.age())
            && next.may_lock(group.hot, group.now)
    }

    /// Whether a running group writes one of these documents.
    pub(super) fn is_any_written(&self, keys: &BTreeSet<Key>) -> bool {
        keys.iter().any(|key| self.in_use.is_written(key))
    }

    /// Selected documents of the waiting transactions that write, as [`GroupQueue::documents`].
    ///
    /// [`GroupQueue::documents`]: crate::engine::hot::GroupQueue::documents
    pub(super) fn documents(&self, enough: usize, selects: &dyn Fn(&Key) -> bool) -> BTreeSet<Key> {
        let mut documents = BTreeSet::new();
        for next in self.waiting.values().filter(|next| !next.uses.only_reads()) {
            documents.extend(next.uses.keys().filter(|key| selects(key)).cloned());
            if documents.len() >= enough {
                break;
            }
        }
        documents
    }

    pub(super) fn is_granted(&self, number: u64) -> bool {
        self.permits.contains_key(&number)
    }

    /// Takes a permit back. Returns whether its group had members.
    ///
    /// Then other transactions may be able to start.
    pub(super) fn return_permit(&mut self, number: u64) -> bool {
        self.permits.remove(&number).is_some_and(|permit| permit.forming_in.is_none())
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

#[cfg(all(test, shuttle))]
#[path = "queue_schedules.rs"]
mod schedules;
