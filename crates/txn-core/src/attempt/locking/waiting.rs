//! Waits of an attempt for lock holders and for the board turn.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::attempt::Attempt;
use crate::clock::Backoff;
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::hot::board::Wanted;
use crate::engine::hot::lock_queue::QueuedLock;
use crate::engine::store::store_access::ReadPreference;
use crate::engine::wait_reason::WaitReason;
use crate::event::WaitEnd;
use txn_protocol::ids::AttemptId;
use txn_protocol::record::State;
use txn_protocol::rules::conflict::{HolderState, Requester};
use txn_store::Key;

/// The grace for a holder in another process, in round trips.
///
/// A batch takes three round trips. With a fixed grace of 30 ms, four processes reach 0.15 of the
/// throughput of one process, if another process does not know the board.
const GRACE: u32 = 5;

/// The longest wait with grace: later the board may be lost.
///
/// A slow process waits for at least the grace of two holders, because a poll of the board takes it
/// a round trip, too.
const LONGEST_GRACE: Duration = Duration::from_secs(1);

/// The waits of an attempt for lock holders.
pub(in crate::attempt) struct LockWaits<'a> {
    attempt: &'a Attempt,
    waits: BTreeMap<Key, QueuedLock>,
    /// The last holder of each document, and the start of the wait.
    ///
    /// The start is a time of the monotonic clock.
    holders: BTreeMap<Key, (AttemptId, Duration)>,
    polls: u32,
    /// The start of the wait for any holder.
    since: Option<Duration>,
    /// Whether the time of the attempt ended during a wait.
    timed_out: bool,
}

impl<'a> LockWaits<'a> {
    pub(in crate::attempt) fn new(attempt: &'a Attempt) -> Self {
        let (waits, holders, polls, since) = Default::default();
        Self { attempt, waits, holders, polls, since, timed_out: false }
    }

    /// Returns how the attempt resolves the holder of a document.
    ///
    /// An attempt with several components gives no grace, because the attempt can evict the
    /// components that use the document. An attempt without a board gives none either.
    pub(in crate::attempt) fn requester(&self, key: &Key, holder: AttemptId) -> Requester {
        let now = self.attempt.engine.context.now();
        let is_over = |since: Duration, grace| now.saturating_sub(since) >= grace;
        let grace = self.attempt.engine.hot.board.round_trip() * GRACE;
        let grace_is_over = !self.attempt.engine.hot.board.is_enabled()
            || self.since.is_some_and(|since| is_over(since, LONGEST_GRACE.max(grace * 2)))
            || self
                .holders
                .get(key)
                .is_some_and(|(before, since)| *before == holder && is_over(*since, grace));
        match self.attempt.hot.members.has_several_components() || grace_is_over {
            true => Requester::Locking(self.attempt.tid),
            false => Requester::WithinGrace(self.attempt.tid),
        }
    }

    /// Notes the present holders, and the end of waits for earlier ones.
    ///
    /// Returns whether a holder changed.
    pub(in crate::attempt) fn note_holders(&mut self, busy: &BTreeMap<Key, AttemptId>) -> bool {
        if self.holders.is_empty() && busy.is_empty() {
            return false;
        }
        let now = self.attempt.engine.context.now();
        let is_over = |key: &Key, (holder, _): &mut (AttemptId, Duration)| {
            busy.get(key).is_none_or(|present| present != holder)
        };
        let over: Vec<_> = self.holders.extract_if(.., is_over).collect();
        let mut changed = !over.is_empty();
        self.end(over, now, WaitEnd::Released);
        for (key, holder) in busy {
            self.holders.entry(key.clone()).or_insert_with(|| {
                changed = true;
                let contention = &self.attempt.engine.contention;
                contention.note_live(*holder);
                contention.note_wait(self.attempt.tid, *holder, key, now);
                (*holder, now)
            });
        }
        changed
    }

    fn end(
        &self,
        over: impl IntoIterator<Item = (Key, (AttemptId, Duration))>,
        now: Duration,
        end: WaitEnd,
    ) {
        for (key, (holder, since)) in over {
            let waited = now.saturating_sub(since);
            self.attempt.engine.contention.ended(self.attempt.tid, holder, &key, waited, end);
        }
    }

    /// Waits for holders that go first: older ones, and younger ones within their grace.
    ///
    /// The wait queue orders the attempts of this process by age. Holders in other processes are
    /// polled.
    pub(in crate::attempt) async fn wait_for(
        &mut self,
        busy: &BTreeMap<Key, AttemptId>,
        backoff: &mut Backoff,
        given_up: &CancellationToken,
    ) -> Result<(), AttemptError> {
        let engine = &self.attempt.engine;
        self.waits.retain(|key, _| busy.contains_key(key));
        for (key, holder) in busy {
            self.attempt.refuse_to_wait_for_oneself(key, *holder)?;
            self.waits.entry(key.clone()).or_insert_with(|| {
                engine.contention.begun(self.attempt.tid, *holder, key);
                engine.hot.lock_queues.enter(key, self.attempt.tid.age())
            });
        }
        if self.note_holders(busy) {
            // A new holder has just begun, and needs about the time of a commit.
            *backoff = engine.context.backoff();
        }
        self.polls += 1;
        if self.polls.is_multiple_of(4) {
            check_own_record(self.attempt).await?;
        }
        let Some((key, holder)) = busy.iter().next() else { return Ok(()) };
        wait_with_patience(self.attempt, key, &mut self.since)?;
        let label = engine.contention.label_of(*holder);
        let others = WaitReason::Others { key: key.clone(), holder: *holder, label };
        let left = self.attempt.deadline.left(&*engine.context.config.clock, &others);
        self.timed_out = left.is_err();
        let left = left?;
        // Only the first in the queue polls often, for a holder in another process. The queue wakes
        // the rest.
        let polls = |(key, wait): (&Key, &QueuedLock)| {
            wait.is_first()
                && busy.get(key).is_some_and(|holder| !engine.live_attempts.is_live(*holder))
        };
        let poll = if self.waits.iter().any(polls) {
            backoff.next(&*engine.context.config.entropy)
        } else {
            engine.context.config.lease / 4
        };
        let woken = self.waits.values().map(|wait| Box::pin(wait.woken()));
        tokio::select! {
            biased;
            _ = futures::future::select_all(woken) => {}
            () = self.attempt.handle.notify.notified() => {}
            () = given_up.cancelled() => {}
            () = engine.context.config.clock.sleep(poll.min(left)) => {}
        }
        Ok(())
    }
}

/// Ends the open waits: the attempt stops waiting.
impl Drop for LockWaits<'_> {
    fn drop(&mut self) {
        if self.holders.is_empty() {
            return;
        }
        let handle = &self.attempt.handle;
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Acquire);
        let end = if is_set(&handle.wounded) {
            WaitEnd::Wounded
        } else if self.timed_out || is_set(&handle.expired) {
            WaitEnd::TimedOut
        } else {
            WaitEnd::GaveUp
        };
        let over = std::mem::take(&mut self.holders);
        self.end(over, self.attempt.engine.context.now(), end);
    }
}

/// Waits for the turn of this process at documents, before their locks.
///
/// The wait ends early after `given_up`. The result names the documents on the board until
/// dropped. The queue itself waits for the turns of groups. An attempt that holds locks does
/// not wait for a turn.
pub(in crate::attempt) async fn wait_for_turn(
    attempt: &Attempt,
    keys: &[Key],
    given_up: &CancellationToken,
) -> Result<Option<Wanted>, AttemptError> {
    if keys.is_empty() || is_in_queue(attempt) {
        return Ok(None);
    }
    let wanted = attempt.engine.hot.board.want(keys);
    if may_wait_for_turn(attempt) {
        tokio::select! {
            biased;
            waited = attempt.engine.turns.wait_for_turn(keys, &attempt.deadline) => waited?,
            () = given_up.cancelled() => {}
        }
    }
    Ok(Some(wanted))
}

/// Whether the queue of the process started this attempt.
fn is_in_queue(attempt: &Attempt) -> bool {
    attempt.hot.reservations.has_documents()
}

/// Whether no transaction can wait for this attempt or its outer attempts.
fn may_wait_for_turn(attempt: &Attempt) -> bool {
    attempt.enclosing.is_empty() && !may_hold_any(attempt)
}

fn may_hold_any(attempt: &Attempt) -> bool {
    let locks = attempt.locks.lock();
    !locks.held.is_empty() || !locks.uncertain.is_empty()
}

/// Waits if another process has the turn at these documents.
///
/// Returns whether the attempt waited. An attempt that holds locks or commits a group starts
/// again instead. A nested attempt, and one with locks that its caller commits by hand, do not
/// wait.
pub(in crate::attempt) async fn waited_for_turn(
    attempt: &Attempt,
    keys: impl Iterator<Item = &Key> + Clone,
    given_up: &CancellationToken,
) -> Result<bool, AttemptError> {
    let engine = &attempt.engine;
    let Some(key) = keys.clone().next() else { return Ok(false) };
    if !engine.hot.board.is_turn_of_another(keys.clone(), engine.context.now()) {
        return Ok(false);
    }
    if is_in_queue(attempt) || may_hold_any(attempt) && !attempt.is_manual {
        cov_mark::hit!(locks_are_released_for_the_board);
        return Err(AttemptError::Retry(RetryReason::Waited(key.clone())));
    }
    if !may_wait_for_turn(attempt) {
        return Ok(false);
    }
    // An attempt without locks must not prolong the turn of its process.
    attempt.hot.under_way.lock().take();
    let keys: Vec<Key> = keys.cloned().collect();
    tokio::select! {
        biased;
        () = attempt.handle.notify.notified() => {}
        () = given_up.cancelled() => {}
        waited = engine.turns.wait_for_turn(&keys, &attempt.deadline) => waited?,
    }
    Ok(true)
}

/// Returns the group's permit for the wait, and limits all waits together.
///
/// `since`: the start of the first wait. The limit is `attempt.patience`.
pub(in crate::attempt) fn wait_with_patience(
    attempt: &Attempt,
    key: &Key,
    since: &mut Option<Duration>,
) -> Result<(), AttemptError> {
    attempt.hot.reservations.return_permit();
    let now = attempt.engine.context.now();
    let since = *since.get_or_insert(now);
    match attempt.patience {
        Some(patience) if now.saturating_sub(since) >= patience => {
            Err(AttemptError::Retry(RetryReason::Waited(key.clone())))
        }
        _ => Ok(()),
    }
}

/// Checks early whether an older transaction aborted this one.
async fn check_own_record(attempt: &Attempt) -> Result<(), AttemptError> {
    let found = attempt
        .engine
        .table
        .record_of(attempt.tid, ReadPreference::AnyCopy, &attempt.deadline)
        .await?;
    if found.state() == HolderState::Record(State::Aborted) {
        cov_mark::hit!(wound_seen_while_waiting);
        attempt.handle.wound();
    }
    Ok(())
}
