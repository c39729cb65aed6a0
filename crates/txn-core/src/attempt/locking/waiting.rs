//! Waits of an attempt for lock holders and for the board turn.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::attempt::Attempt;
use crate::clock::Backoff;
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::hot::board::Wanted;
use crate::engine::lock_queue::Ticket;
use crate::engine::store::store_access::ReadPreference;
use crate::engine::wait_reason::WaitReason;
use crate::event::Event;
use crate::store::Key;
use txn_protocol::ids::AttemptId;
use txn_protocol::record::State;
use txn_protocol::rules::conflict::{HolderState, Requester};

/// The grace for a holder in another process, in round trips.
///
/// A batch takes three round trips. With a fixed grace of 30 ms, four processes reach 0.15 of the
/// throughput of one process, if another process does not know the board.
const GRACE: u32 = 5;

/// The longest wait with grace: later the board may be lost.
const LONGEST_GRACE: Duration = Duration::from_secs(1);

/// The waits of an attempt for lock holders.
#[derive(Default)]
pub(in crate::attempt) struct LockWaits {
    tickets: BTreeMap<Key, Ticket>,
    /// The last holder of each document, and the start of the wait.
    ///
    /// The start is a time of the monotonic clock.
    holders: BTreeMap<Key, (AttemptId, Duration)>,
    polls: u32,
    /// The start of the wait for any holder.
    since: Option<Duration>,
}

impl Attempt {
    /// Returns how the attempt resolves the holder of a document.
    ///
    /// An attempt with several members gives no grace, because the attempt can evict the members
    /// that use the document.
    pub(in crate::attempt) fn requester(
        &self,
        waits: &LockWaits,
        key: &Key,
        holder: AttemptId,
    ) -> Requester {
        let now = self.engine.context.now();
        let is_over = |since: Duration, grace| now.saturating_sub(since) >= grace;
        let grace = self.engine.hot.board.round_trip() * GRACE;
        let stands = !self.engine.hot.board.is_enabled()
            || waits.since.is_some_and(|since| is_over(since, LONGEST_GRACE))
            || waits
                .holders
                .get(key)
                .is_some_and(|(before, since)| *before == holder && is_over(*since, grace));
        match self.has_several_members() || stands {
            true => Requester::Locking(self.tid),
            false => Requester::WithinGrace(self.tid),
        }
    }

    /// Waits for the turn of this process at documents, before their locks.
    ///
    /// The wait ends early after `given_up`. The result names the documents on the board until
    /// dropped. The queue itself waits for the turns of groups. An attempt that holds locks does
    /// not wait for a turn.
    pub(in crate::attempt) async fn wait_for_turn(
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
                waited = self.engine.turns.wait_for_turn(keys, &self.deadline) => waited?,
                () = given_up.cancelled() => {}
            }
        }
        Ok(Some(wanted))
    }

    /// Whether the queue of the process started this attempt.
    fn is_in_queue(&self) -> bool {
        self.hot.reservations.has_documents()
    }

    /// Whether no transaction can wait for this attempt or its outer attempts.
    fn may_wait_for_turn(&self) -> bool {
        self.enclosing.is_empty() && !self.may_hold_any()
    }

    fn may_hold_any(&self) -> bool {
        let locks = self.locks.lock();
        !locks.held.is_empty() || !locks.uncertain.is_empty()
    }

    /// Waits if another process has the turn at these documents.
    ///
    /// Returns whether the attempt waited. An attempt that holds locks or commits a group starts
    /// again instead.
    pub(in crate::attempt) async fn waited_for_turn(
        &self,
        busy: &BTreeMap<Key, AttemptId>,
        given_up: &CancellationToken,
    ) -> Result<bool, AttemptError> {
        let engine = &self.engine;
        let Some(key) = busy.keys().next() else { return Ok(false) };
        if !engine.hot.board.is_turn_of_another(busy.keys(), engine.context.now()) {
            return Ok(false);
        }
        if self.is_in_queue() || self.may_hold_any() && !self.stepped {
            cov_mark::hit!(locks_are_released_for_the_board);
            return Err(AttemptError::Retry(RetryReason::Waited(key.clone())));
        }
        if !self.may_wait_for_turn() {
            return Ok(false);
        }
        // An attempt without locks must not prolong the turn of its process.
        self.hot.under_way.lock().take();
        let keys: Vec<Key> = busy.keys().cloned().collect();
        tokio::select! {
            biased;
            () = self.handle.notify.notified() => {}
            () = given_up.cancelled() => {}
            waited = engine.turns.wait_for_turn(&keys, &self.deadline) => waited?,
        }
        Ok(true)
    }

    /// Waits for older holders.
    ///
    /// The wait queue orders the attempts of this process by age. Holders in other processes are
    /// polled.
    pub(in crate::attempt) async fn wait_for(
        &self,
        busy: &BTreeMap<Key, AttemptId>,
        waits: &mut LockWaits,
        backoff: &mut Backoff,
        given_up: &CancellationToken,
    ) -> Result<(), AttemptError> {
        let engine = &self.engine;
        waits.tickets.retain(|key, _| busy.contains_key(key));
        for (key, holder) in busy {
            self.refuse_to_wait_for_oneself(key, *holder)?;
            waits.tickets.entry(key.clone()).or_insert_with(|| {
                let (tid, holder, document) = (self.tid, *holder, key.clone());
                engine.context.emit(&Event::Waiting { tid, holder, document });
                engine.live_attempts.enter(key, self.tid.age())
            });
        }
        let now = engine.context.now();
        let since = |key: &Key, holder: AttemptId| match waits.holders.get(key) {
            Some((before, since)) if *before == holder => *since,
            _ => now,
        };
        let holders: BTreeMap<Key, (AttemptId, Duration)> = busy
            .iter()
            .map(|(key, holder)| (key.clone(), (*holder, since(key, *holder))))
            .collect();
        if waits.holders != holders {
            // A new holder has just begun, and needs about the time of a commit.
            *backoff = engine.context.backoff();
            waits.holders = holders;
        }
        waits.polls += 1;
        if waits.polls.is_multiple_of(4) {
            self.check_own_record().await?;
        }
        let Some((key, holder)) = busy.iter().next() else { return Ok(()) };
        self.wait_with_patience(key, &mut waits.since)?;
        let others = WaitReason::Others { key: key.clone(), holder: *holder };
        let left = self.deadline.left(&*engine.context.config.clock, &others)?;
        // Only the first in the queue polls often, for a holder in another process. The queue wakes
        // the rest.
        let polls = |(key, ticket): (&Key, &Ticket)| {
            ticket.is_first()
                && busy.get(key).is_some_and(|holder| !engine.live_attempts.is_live(*holder))
        };
        let poll = if waits.tickets.iter().any(polls) {
            backoff.next(&*engine.context.config.entropy)
        } else {
            engine.context.config.lease / 4
        };
        let woken = waits.tickets.values().map(|ticket| Box::pin(ticket.woken()));
        tokio::select! {
            biased;
            _ = futures::future::select_all(woken) => {}
            () = self.handle.notify.notified() => {}
            () = given_up.cancelled() => {}
            () = engine.context.config.clock.sleep(poll.min(left)) => {}
        }
        Ok(())
    }

    /// Frees the group slot for the wait, and limits all waits together.
    ///
    /// `since`: the start of the first wait. The limit is `self.patience`.
    pub(in crate::attempt) fn wait_with_patience(
        &self,
        key: &Key,
        since: &mut Option<Duration>,
    ) -> Result<(), AttemptError> {
        self.hot.reservations.free_slot();
        let now = self.engine.context.now();
        let since = *since.get_or_insert(now);
        match self.patience {
            Some(patience) if now.saturating_sub(since) >= patience => {
                Err(AttemptError::Retry(RetryReason::Waited(key.clone())))
            }
            _ => Ok(()),
        }
    }

    /// Checks early whether an older transaction aborted this one.
    async fn check_own_record(&self) -> Result<(), AttemptError> {
        let found =
            self.engine.table.record_of(self.tid, ReadPreference::AnyCopy, &self.deadline).await?;
        if found.state() == HolderState::Record(State::Aborted) {
            cov_mark::hit!(wound_seen_while_waiting);
            self.handle.wound();
        }
        Ok(())
    }
}
