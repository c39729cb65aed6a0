//! Waiting for whoever holds a document.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Attempt;
use crate::clock::Backoff;
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::hot::board::Wanted;
use crate::engine::lock_queue::Ticket;
use crate::engine::store_access::ReadPreference;
use crate::engine::wait_reason::WaitReason;
use crate::event::Event;
use crate::store::Key;
use txn_protocol::ids::AttemptId;
use txn_protocol::record::State;
use txn_protocol::rules::conflict::{HolderState, Requester};

/// How long a holder in another process may finish by itself, in round trips: a batch takes three.
///
/// With a fixed time of 30 ms four processes reach 0.15 of one beside a process that does not know
/// the board.
const GRACE: u32 = 5;

/// An attempt that waits for this long decides about each holder at once: the board may be lost.
const LONGEST_GRACE: Duration = Duration::from_secs(1);

/// The queues that an attempt waits in.
#[derive(Default)]
pub(super) struct Queues {
    tickets: BTreeMap<Key, Ticket>,
    /// For whom it waits, when it looked last, and since when, on the monotonic clock.
    holders: BTreeMap<Key, (AttemptId, Duration)>,
    polls: u32,
    /// Since when it waits for anybody.
    since: Option<Duration>,
}

impl Attempt {
    /// As whom it meets the holder of a document. Whoever could go on without it does not wait for it at all.
    pub(super) fn requester(&self, queues: &Queues, key: &Key, holder: AttemptId) -> Requester {
        let now = self.engine.now();
        let is_over = |since: Duration, grace| now.saturating_sub(since) >= grace;
        let grace = self.engine.hot.board.round_trip() * GRACE;
        let stands = !self.engine.hot.board.is_enabled()
            || queues.since.is_some_and(|since| is_over(since, LONGEST_GRACE))
            || queues
                .holders
                .get(key)
                .is_some_and(|(before, since)| *before == holder && is_over(*since, grace));
        match self.has_components() || stands {
            true => Requester::Locking(self.tid),
            false => Requester::Courteous(self.tid),
        }
    }

    /// Waits for the turn of the process at documents before an attempt locks them, until it is
    /// `given_up`. The result names the documents to the board until it is dropped.
    ///
    /// The queue waits for the turns of groups. An attempt that holds locks does not wait for a
    /// turn.
    pub(super) async fn wait_for_turn(
        &self,
        keys: &[Key],
        given_up: &CancellationToken,
    ) -> Result<Option<Wanted>, AttemptError> {
        if keys.is_empty() || self.is_in_queue() {
            return Ok(None);
        }
        let wanted = self.engine.hot.board.want(keys);
        if self.may_wait_for_turn() {
            tokio::select! {
                biased;
                waited = self.engine.wait_for_turn(keys, &self.deadline) => waited?,
                () = given_up.cancelled() => {}
            }
        }
        Ok(Some(wanted))
    }

    /// Whether the queue of the process composed it.
    fn is_in_queue(&self) -> bool {
        self.hot.seat.has_documents()
    }

    /// Whether no transaction waits for a lock of this one, or of one that it is nested in.
    fn may_wait_for_turn(&self) -> bool {
        self.enclosing.is_empty() && !self.may_hold_any()
    }

    fn may_hold_any(&self) -> bool {
        let locks = self.locks.lock();
        !locks.held.is_empty() || !locks.uncertain.is_empty()
    }

    /// If it is the turn of another process at these documents: waits for the turn of this one, and
    /// returns true. An attempt with locks, or of a group, has to start again.
    pub(super) async fn waited_for_turn(
        &self,
        busy: &BTreeMap<Key, AttemptId>,
        given_up: &CancellationToken,
    ) -> Result<bool, AttemptError> {
        let engine = &self.engine;
        let Some(key) = busy.keys().next() else { return Ok(false) };
        if !engine.hot.board.is_turn_of_another(busy.keys(), engine.now()) {
            return Ok(false);
        }
        if self.is_in_queue() || self.may_hold_any() && !self.stepped {
            cov_mark::hit!(locks_are_released_for_the_board);
            return Err(AttemptError::Retry(RetryReason::Waited(key.clone())));
        }
        if !self.may_wait_for_turn() {
            return Ok(false);
        }
        // Without a lock it does not keep its process from ending its turn.
        self.hot.under_way.lock().take();
        let keys: Vec<Key> = busy.keys().cloned().collect();
        tokio::select! {
            biased;
            () = self.handle.notify.notified() => {}
            () = given_up.cancelled() => {}
            waited = engine.wait_for_turn(&keys, &self.deadline) => waited?,
        }
        Ok(true)
    }

    /// Waits for older holders: in this process in the queues by age, across processes by polling.
    pub(super) async fn wait_for(
        &self,
        busy: &BTreeMap<Key, AttemptId>,
        queues: &mut Queues,
        backoff: &mut Backoff,
        given_up: &CancellationToken,
    ) -> Result<(), AttemptError> {
        let engine = &self.engine;
        queues.tickets.retain(|key, _| busy.contains_key(key));
        for (key, holder) in busy {
            self.refuse_to_wait_for_oneself(key, *holder)?;
            queues.tickets.entry(key.clone()).or_insert_with(|| {
                let (tid, holder, document) = (self.tid, *holder, key.clone());
                engine.emit(&Event::Waiting { tid, holder, document });
                engine.live_attempts.enter(key, self.tid.age())
            });
        }
        let now = engine.now();
        let since = |key: &Key, holder: AttemptId| match queues.holders.get(key) {
            Some((before, since)) if *before == holder => *since,
            _ => now,
        };
        let holders: BTreeMap<Key, (AttemptId, Duration)> = busy
            .iter()
            .map(|(key, holder)| (key.clone(), (*holder, since(key, *holder))))
            .collect();
        if queues.holders != holders {
            // A new holder has just begun, and needs about the time of a commit.
            *backoff = engine.backoff();
            queues.holders = holders;
        }
        queues.polls += 1;
        if queues.polls.is_multiple_of(4) {
            self.check_own_record().await?;
        }
        let Some((key, holder)) = busy.iter().next() else { return Ok(()) };
        self.wait_with_patience(key, &mut queues.since)?;
        let others = WaitReason::Others { key: key.clone(), holder: *holder };
        let left = self.deadline.left(&*engine.config.clock, &others)?;
        // Whoever is not first, or waits for one of this process, is woken and need not poll often.
        let polls = |(key, ticket): (&Key, &Ticket)| {
            ticket.is_first()
                && busy.get(key).is_some_and(|holder| !engine.live_attempts.is_live(*holder))
        };
        let poll = if queues.tickets.iter().any(polls) {
            backoff.next(&*engine.config.entropy)
        } else {
            engine.config.lease / 4
        };
        let woken = queues.tickets.values().map(|ticket| Box::pin(ticket.woken()));
        tokio::select! {
            biased;
            _ = futures::future::select_all(woken) => {}
            () = self.handle.notify.notified() => {}
            () = given_up.cancelled() => {}
            () = engine.config.clock.sleep(poll.min(left)) => {}
        }
        Ok(())
    }

    /// Whoever waits for others keeps nobody from having a turn, and waits for so long only, in all, as it has patience. `since`: its
    /// first wait.
    pub(super) fn wait_with_patience(
        &self,
        key: &Key,
        since: &mut Option<Duration>,
    ) -> Result<(), AttemptError> {
        self.hot.seat.leave_turn();
        let now = self.engine.now();
        let since = *since.get_or_insert(now);
        match self.patience {
            Some(patience) if now.saturating_sub(since) >= patience => {
                Err(AttemptError::Retry(RetryReason::Waited(key.clone())))
            }
            _ => Ok(()),
        }
    }

    /// Finds out early that an older transaction aborted this one.
    async fn check_own_record(&self) -> Result<(), AttemptError> {
        let found =
            self.engine.record_of(self.tid, ReadPreference::AnyCopy, &self.deadline).await?;
        if found.state() == HolderState::Record(State::Aborted) {
            cov_mark::hit!(wound_seen_while_waiting);
            self.handle.wound();
        }
        Ok(())
    }
}
