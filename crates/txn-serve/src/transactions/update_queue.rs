//! The queues of reads for update.
//!
//! The queues order the reservations of documents by arrival. This module does no I/O.
//!
//! A ticket stands in the queues of all its documents at once. While the ticket is the first in
//! each of these queues, the ticket holds its reservation. The oldest ticket is the first
//! everywhere, so no two tickets can wait for each other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use txn_core::Raw;
use txn_core::store::Key;

/// The maximum number of tickets in the queue of one document.
const MOST_PER_DOCUMENT: usize = 128;

/// The maximum number of documents of a ticket.
const MOST_DOCUMENTS: usize = 128;

/// The maximum number of tickets.
const MOST_TICKETS: usize = 10_000;

/// The maximum number of bytes of all published contents.
const MOST_BYTES: usize = 16 << 20;

/// The random number of a reservation.
pub(super) type Ticket = u128;

/// The content that a commit gives a document.
#[derive(Clone, Debug)]
pub(super) struct Newest {
    commit: Ticket,
    /// Whether the commit has succeeded. Another writer may have changed the document since.
    pub(super) is_committed: bool,
    pub(super) content: Option<Raw>,
    /// The progress of the commit. The value is `true` once the commit may be in a group, and the
    /// channel is closed once the commit is decided.
    pub(super) progress: watch::Receiver<bool>,
}

impl Newest {
    pub(super) fn new(
        commit: Ticket,
        content: Option<Raw>,
        progress: watch::Receiver<bool>,
    ) -> Self {
        Self { commit, is_committed: false, content, progress }
    }

    fn bytes(&self) -> usize {
        self.content.as_ref().map_or(0, |content| content.as_str().len())
    }
}

/// The reservations of one document.
#[derive(Debug, Default)]
struct DocumentQueue {
    tickets: VecDeque<Ticket>,
    newest: Option<Newest>,
}

#[derive(Debug)]
struct Entry {
    keys: BTreeSet<Key>,
    wake: Arc<Notify>,
    state: State,
    /// The number of documents of which another ticket is the first.
    blocked: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    /// The request that holds the reservation runs.
    Running,
    /// The gateway waits for the commit until this moment.
    Awaited(Instant),
    /// The commit has arrived. The reservation ends at this moment at the latest.
    Committing(Instant),
}

impl State {
    fn end(self) -> Option<Instant> {
        match self {
            Self::Waiting | Self::Running => None,
            Self::Awaited(end) | Self::Committing(end) => Some(end),
        }
    }
}

/// The queues of all documents. An unused queue has no entry.
#[derive(Debug, Default)]
pub(super) struct Queues {
    documents: BTreeMap<Key, DocumentQueue>,
    tickets: BTreeMap<Ticket, Entry>,
    /// The ends of the reservations, soonest first.
    ends: BTreeSet<(Instant, Ticket)>,
    waiting: usize,
    bytes: usize,
}

impl Queues {
    /// Enters a ticket. Returns whether there was room.
    pub(super) fn enter(
        &mut self,
        ticket: Ticket,
        keys: BTreeSet<Key>,
        wake: Arc<Notify>,
        most_waiting: usize,
    ) -> bool {
        let length =
            |key| self.documents.get(key).map_or(0, |queue: &DocumentQueue| queue.tickets.len());
        let longest = keys.iter().map(length).max().unwrap_or(0);
        let blocked = keys.iter().filter(|key| length(key) > 0).count();
        let is_full = keys.len() > MOST_DOCUMENTS
            || longest >= MOST_PER_DOCUMENT
            || longest > 0 && self.waiting >= most_waiting
            || self.tickets.len() >= MOST_TICKETS;
        if is_full || self.tickets.contains_key(&ticket) {
            return false;
        }
        for key in &keys {
            self.documents.entry(key.clone()).or_default().tickets.push_back(ticket);
        }
        self.tickets.insert(ticket, Entry { keys, wake, state: State::Waiting, blocked });
        self.waiting += 1;
        if blocked == 0 {
            self.grant(ticket);
        }
        true
    }

    /// Whether the ticket holds its reservation.
    pub(super) fn holds(&self, ticket: Ticket) -> bool {
        self.tickets.get(&ticket).is_some_and(|entry| entry.state != State::Waiting)
    }

    /// The soonest end of the reservations for which a ticket waits.
    pub(super) fn next_end(&self, ticket: Ticket) -> Option<Instant> {
        let firsts = self.tickets.get(&ticket)?.keys.iter().filter_map(|key| self.first(key));
        firsts.filter_map(|first| self.tickets.get(&first)?.state.end()).min()
    }

    /// Lets a reservation wait for its commit until a moment.
    pub(super) fn await_commit(&mut self, ticket: Ticket, end: Instant) {
        self.enter_state(ticket, State::Awaited(end));
    }

    /// Takes a reservation for its commit. Returns its documents, if it has not ended.
    pub(super) fn commit(&mut self, ticket: Ticket, end: Instant) -> Option<BTreeSet<Key>> {
        let entry = self.tickets.get(&ticket)?;
        if !matches!(entry.state, State::Awaited(_)) {
            return None;
        }
        let keys = entry.keys.clone();
        self.enter_state(ticket, State::Committing(end));
        Some(keys)
    }

    /// Whether other tickets wait for one of these documents.
    pub(super) fn is_wanted(&self, keys: &BTreeSet<Key>) -> bool {
        let length = |key| self.documents.get(key).map_or(0, |queue| queue.tickets.len());
        keys.iter().any(|key| length(key) > 1)
    }

    /// Ends the reservations whose time has passed.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((end, ticket)) = self.ends.first().copied()
            && end <= now
        {
            self.ends.remove(&(end, ticket));
            self.leave(ticket);
        }
    }

    /// Removes a ticket from its queues, and grants the next reservations.
    ///
    /// A holder that passed nothing on may have written, so the content that it read is forgotten.
    pub(super) fn leave(&mut self, ticket: Ticket) {
        let Some(entry) = self.tickets.remove(&ticket) else { return };
        if entry.state == State::Waiting {
            self.waiting -= 1;
        }
        if let Some(end) = entry.state.end() {
            self.ends.remove(&(end, ticket));
        }
        for key in &entry.keys {
            let was_first = self.first(key) == Some(ticket);
            if let Some(queue) = self.documents.get_mut(key) {
                queue.tickets.retain(|other| *other != ticket);
            }
            self.forget_newest(key, |newest| entry.state != State::Waiting && newest.is_committed);
            self.forget_unused(key);
            if was_first {
                self.unblock_first(key);
            }
            self.wake_next(key);
        }
    }

    /// Publishes the content that a commit will give a document. Returns whether there was room.
    ///
    /// The content of an earlier commit is forgotten in either case.
    pub(super) fn publish(&mut self, key: &Key, newest: Newest) -> bool {
        self.forget_newest(key, |_| true);
        let Some(queue) = self.documents.get_mut(key) else { return true };
        let bytes = self.bytes + newest.bytes();
        let has_room = bytes <= MOST_BYTES;
        if has_room {
            queue.newest = Some(newest);
            self.bytes = bytes;
        }
        has_room
    }

    /// The content of the newest commit that has passed its content on.
    pub(super) fn newest(&self, key: &Key) -> Option<&Newest> {
        self.documents.get(key)?.newest.as_ref()
    }

    /// Notes the end of a commit.
    ///
    /// The contents of `verified` documents stay for the tickets that wait: the commit has compared
    /// the contents before. The others are forgotten, and those of another ended commit, too.
    pub(super) fn settle(
        &mut self,
        commit: Ticket,
        keys: &BTreeSet<Key>,
        verified: &BTreeSet<Key>,
    ) {
        for key in keys {
            self.forget_newest(key, |newest| match newest.commit == commit {
                true => !verified.contains(key),
                false => newest.is_committed,
            });
            let newest = self.documents.get_mut(key).and_then(|queue| queue.newest.as_mut());
            if let Some(newest) = newest {
                newest.is_committed = newest.commit == commit;
            }
            self.forget_unused(key);
        }
    }

    /// Notes that a ticket is now the first of a document.
    fn unblock_first(&mut self, key: &Key) {
        let Some(first) = self.first(key) else { return };
        let Some(entry) = self.tickets.get_mut(&first) else { return };
        entry.blocked -= 1;
        if entry.blocked == 0 {
            self.grant(first);
        }
    }

    /// Grants the reservation of a ticket.
    ///
    /// The ticket is the first in all its queues.
    fn grant(&mut self, ticket: Ticket) {
        self.waiting -= 1;
        self.enter_state(ticket, State::Running);
    }

    fn enter_state(&mut self, ticket: Ticket, state: State) {
        let Some(entry) = self.tickets.get_mut(&ticket) else { return };
        if let Some(end) = entry.state.end() {
            self.ends.remove(&(end, ticket));
        }
        entry.state = state;
        self.ends.extend(state.end().map(|end| (end, ticket)));
        entry.wake.notify_one();
        for key in entry.keys.clone() {
            self.wake_next(&key);
        }
    }

    /// Wakes the second ticket of a document.
    ///
    /// The wait of the second ticket depends on the end of the first one.
    fn wake_next(&self, key: &Key) {
        let next = self.documents.get(key).and_then(|queue| queue.tickets.get(1));
        if let Some(entry) = next.and_then(|next| self.tickets.get(next)) {
            entry.wake.notify_one();
        }
    }

    fn first(&self, key: &Key) -> Option<Ticket> {
        self.documents.get(key)?.tickets.front().copied()
    }

    fn forget_unused(&mut self, key: &Key) {
        if self.documents.get(key).is_none_or(|queue| !queue.tickets.is_empty()) {
            return;
        }
        self.forget_newest(key, |newest| newest.is_committed);
        if self.newest(key).is_none() {
            self.documents.remove(key);
        }
    }

    /// Forgets the published content of a document if it has ended.
    fn forget_newest(&mut self, key: &Key, has_ended: impl FnOnce(&Newest) -> bool) {
        let queue = self.documents.get_mut(key);
        let ended = queue.and_then(|queue| queue.newest.take_if(|newest| has_ended(newest)));
        self.bytes -= ended.map_or(0, |newest| newest.bytes());
    }

    /// Whether no reservation and no content is left.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.documents.is_empty()
            && self.tickets.is_empty()
            && self.ends.is_empty()
            && (self.waiting, self.bytes) == (0, 0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn keys(ids: &[&str]) -> BTreeSet<Key> {
        ids.iter().map(|id| Key::new("stock", *id)).collect()
    }

    /// Queues with a ticket for each list of ids, numbered from 1.
    fn queues(tickets: &[&[&str]]) -> Queues {
        let mut queues = Queues::default();
        for (ids, ticket) in tickets.iter().zip(1..) {
            assert!(queues.enter(ticket, keys(ids), Arc::default(), 100), "{ids:?}");
        }
        queues
    }

    fn holders(queues: &Queues) -> Vec<Ticket> {
        queues.tickets.keys().copied().filter(|ticket| queues.holds(*ticket)).collect()
    }

    #[test]
    fn reservations_of_a_document_are_granted_in_order() {
        let mut queues = queues(&[&["a"], &["a"], &["b"], &["a"]]);
        assert_eq!(holders(&queues), [1, 3]);
        queues.leave(2);
        assert_eq!(holders(&queues), [1, 3]);
        queues.leave(1);
        assert_eq!(holders(&queues), [3, 4]);
        queues.leave(3);
        queues.leave(4);
        assert!(queues.is_empty(), "{queues:?}");
    }

    #[test]
    fn several_documents_are_reserved_together() {
        let mut queues = queues(&[&["a"], &["b", "a"], &["b", "c"], &["c"]]);
        assert_eq!(holders(&queues), [1]);
        queues.leave(1);
        assert_eq!(holders(&queues), [2]);
        queues.leave(2);
        assert_eq!(holders(&queues), [3]);
        queues.leave(3);
        assert_eq!(holders(&queues), [4]);
    }

    #[test]
    fn reservation_without_a_commit_expires() {
        let mut queues = queues(&[&["a"], &["a"]]);
        let now = Instant::now();
        let end = now + Duration::from_millis(50);
        queues.await_commit(1, end);
        assert_eq!(queues.next_end(2), Some(end));
        queues.expire(now);
        assert_eq!(holders(&queues), [1]);
        queues.expire(end);
        assert_eq!(holders(&queues), [2]);
        assert_eq!(queues.commit(1, end), None, "it has ended");
        queues.leave(2);
        assert!(queues.is_empty(), "{queues:?}");
    }

    #[test]
    fn reservation_serves_one_commit() {
        let mut queues = queues(&[&["a"]]);
        let end = Instant::now();
        assert_eq!(queues.commit(1, end), None, "its read still runs");
        queues.await_commit(1, end);
        assert_eq!(queues.commit(1, end), Some(keys(&["a"])));
        assert_eq!(queues.commit(1, end), None);
    }

    #[test]
    fn published_content_ends_with_its_commit() {
        let mut queues = queues(&[&["a"], &["a"]]);
        let (_progress, progress) = watch::channel(false);
        let (a, content) = (keys(&["a"]), Some(Raw::new("{}")));
        let key = Key::new("stock", "a");
        queues.publish(&key, Newest::new(1, content, progress.clone()));
        queues.leave(1);
        assert!(queues.newest(&key).is_some_and(|newest| newest.content.is_some()));
        queues.publish(&key, Newest::new(2, None, progress));
        // The content of a later commit stays.
        queues.settle(1, &a, &a);
        assert!(queues.newest(&key).is_some_and(|newest| newest.content.is_none()));
        queues.leave(2);
        queues.settle(2, &a, &BTreeSet::new());
        assert!(queues.is_empty(), "{queues:?}");
    }

    #[test]
    fn committed_content_stays_for_waiting_tickets() {
        let mut queues = queues(&[&["a"], &["a"], &["a"]]);
        let (_progress, progress) = watch::channel(false);
        let (a, key) = (keys(&["a"]), Key::new("stock", "a"));
        queues.publish(&key, Newest::new(1, None, progress));
        queues.leave(1);
        queues.settle(1, &a, &a);
        assert!(queues.newest(&key).is_some_and(|newest| newest.is_committed));
        // The second holder passes no content on, so the content of the first one may be stale.
        queues.leave(2);
        assert!(queues.newest(&key).is_none());
        queues.leave(3);
        assert!(queues.is_empty(), "{queues:?}");
    }

    #[test]
    fn content_of_an_unread_document_is_forgotten() {
        let mut queues = queues(&[&["a", "b"], &["a", "b"]]);
        let (_progress, progress) = watch::channel(false);
        let [a, b] = ["a", "b"].map(|id| Key::new("stock", id));
        for key in [&a, &b] {
            queues.publish(key, Newest::new(1, None, progress.clone()));
        }
        queues.leave(1);
        queues.settle(1, &keys(&["a", "b"]), &keys(&["a"]));
        assert!(queues.newest(&a).is_some() && queues.newest(&b).is_none());
    }

    #[test]
    fn content_without_waiting_tickets_is_forgotten() {
        for ends_first in [true, false] {
            let mut queues = queues(&[&["a"]]);
            let (_progress, progress) = watch::channel(false);
            let (a, key) = (keys(&["a"]), Key::new("stock", "a"));
            queues.publish(&key, Newest::new(1, Some(Raw::new("{}")), progress));
            if ends_first {
                queues.settle(1, &a, &a);
                queues.leave(1);
            } else {
                queues.leave(1);
                queues.settle(1, &a, &a);
            }
            assert!(queues.is_empty(), "{queues:?}");
        }
    }

    #[test]
    fn content_without_room_replaces_an_earlier_one() {
        let mut queues = queues(&[&["a"], &["b"]]);
        let (_progress, progress) = watch::channel(false);
        let newest = |commit, bytes: usize| {
            let content = Some(Raw::new("x".repeat(bytes)));
            Newest::new(commit, content, progress.clone())
        };
        let [a, b] = ["a", "b"].map(|id| Key::new("stock", id));
        assert!(queues.publish(&a, newest(1, 10)));
        assert!(!queues.publish(&a, newest(2, MOST_BYTES + 1)), "too large");
        assert!(queues.newest(&a).is_none(), "the commit replaces the content of the earlier one");
        assert!(queues.publish(&a, newest(1, MOST_BYTES)));
        assert!(!queues.publish(&b, newest(2, 1)), "the room is used");
        assert!(queues.publish(&a, newest(1, MOST_BYTES)), "its own room is free again");
        for (ticket, key) in [(1, a), (2, b)] {
            queues.leave(ticket);
            queues.settle(ticket, &BTreeSet::from([key]), &BTreeSet::new());
        }
        assert!(queues.is_empty(), "{queues:?}");
    }

    #[test]
    fn ticket_has_few_documents() {
        let mut queues = Queues::default();
        let keys = |most: usize| (0..most).map(|id| Key::new("stock", id.to_string())).collect();
        assert!(!queues.enter(1, keys(MOST_DOCUMENTS + 1), Arc::default(), 100));
        assert!(queues.enter(1, keys(MOST_DOCUMENTS), Arc::default(), 100));
        assert!(queues.enter(2, keys(MOST_DOCUMENTS), Arc::default(), 100));
        assert_eq!(holders(&queues), [1]);
        queues.leave(1);
        assert_eq!(holders(&queues), [2]);
        queues.leave(2);
        assert!(queues.is_empty(), "{queues:?}");
    }

    #[test]
    fn queues_are_bounded() {
        let mut queues = Queues::default();
        let mut enter = |ticket, id, most| queues.enter(ticket, keys(&[id]), Arc::default(), most);
        let most = Ticket::try_from(MOST_PER_DOCUMENT).expect("fits");
        assert!((0..most).all(|ticket| enter(ticket, "a", usize::MAX)));
        assert!(!enter(most, "a", usize::MAX), "the queue is full");
        assert!(enter(most, "b", 1), "a free document needs no wait");
        assert!(!enter(most + 1, "b", 1), "too many tickets wait");
    }
}
