//! In which order several documents are locked: all at once, as long as nobody is in the way. Whoever locks in order waits for one
//! document, by name, and holds none behind it, so that those who lock in order never wait for each other in a circle.

use std::collections::BTreeMap;
use std::time::Duration;

use super::want::Want;
use super::{Attempt, Held};
use crate::engine::Engine;
use crate::engine::attempt_error::AttemptError;
use crate::engine::wait_reason::WaitReason;
use crate::store::{Key, Outcome, Write};
use txn_protocol::ids::AttemptId;

/// A free document is left to others who may go first for so long at most, for each of them.
const LONGEST: Duration = Duration::from_millis(30);

/// How far it has come.
#[derive(Clone, Debug)]
pub(super) struct Order {
    is_kept: bool,
    /// Nothing behind this document has its turn; none: all have.
    up_to: Option<Key>,
    /// The document was free, and was left to others for a moment.
    waited: bool,
}

impl Order {
    /// `is_kept`: the first is locked before the others.
    pub(super) fn new(is_kept: bool, wants: &BTreeMap<Key, Want>) -> Self {
        let up_to = wants.keys().next().filter(|_| is_kept).cloned();
        Self { is_kept, up_to, waited: false }
    }

    /// Those that have their turn.
    pub(super) fn of<'w>(
        &self,
        wants: &'w mut BTreeMap<Key, Want>,
    ) -> impl Iterator<Item = (&'w Key, &'w mut Want)> {
        let up_to = self.up_to.clone();
        wants.iter_mut().filter(move |(key, _)| up_to.as_ref().is_none_or(|last| *key <= last))
    }

    /// What is to be looked at: those that have their turn, or all, if this process is the next to have the first of them.
    pub(super) fn next(&mut self, wants: &BTreeMap<Key, Want>, engine: &Engine) -> Self {
        // It may not be wanted any more.
        self.up_to.take_if(|first| !wants.contains_key(first));
        let is_next = |first: &Key| engine.contested.before(first, engine.now()) == 0;
        Self { up_to: self.up_to.clone().filter(|first| !is_next(first)), ..self.clone() }
    }

    /// Where a contested document is free, waits for those who may go before this process. `took`: how long the look at it took.
    /// Returns whether it waited, and has to look again.
    pub(super) async fn lets_others_go_first(
        &mut self,
        wants: &mut BTreeMap<Key, Want>,
        took: Duration,
        attempt: &Attempt,
    ) -> Result<bool, AttemptError> {
        let engine = &attempt.engine;
        let Some(first) = &self.up_to else { return Ok(false) };
        let Some(want) = wants.get_mut(first) else { return Ok(false) };
        let before = engine.contested.before(first, engine.now());
        // Who holds others lets nobody go first, who would wait for them.
        if !want.is_free() || self.waited || before == 0 || !attempt.locks.lock().held.is_empty() {
            self.waited &= want.is_free();
            return Ok(false);
        }
        cov_mark::hit!(others_go_first);
        (want.view, self.waited) = (None, true);
        let wait = LONGEST.min(took * 2 + Duration::from_millis(2));
        attempt.seat.leave_turn();
        let changing = WaitReason::Changing(first.clone());
        attempt.deadline.pause(&*engine.config.clock, wait * before, changing).await?;
        Ok(true)
    }

    /// All have their turn, if all were looked at and the first is free.
    pub(super) fn go_on(&mut self, wants: &mut BTreeMap<Key, Want>, looked_at: &Self) {
        let (Some(first), None) = (&self.up_to, &looked_at.up_to) else { return };
        if wants.get(first).is_some_and(Want::is_free) {
            self.up_to = None;
        } else {
            // What was seen behind it is old by the time it counts.
            let behind = wants.iter_mut().filter(|(key, _)| *key > first);
            behind.for_each(|(_, want)| want.view = None);
        }
    }

    /// Others are in the way: only the first of those that they have is waited for. Returns it, if the order is kept.
    pub(super) fn stop_at(&mut self, busy: &mut BTreeMap<Key, AttemptId>) -> Option<Key> {
        let first = busy.keys().next().filter(|_| self.is_kept).cloned()?;
        busy.retain(|key, _| *key <= first);
        self.up_to = Some(first.clone());
        Some(first)
    }

    /// Whether the document that was waited for is locked now, so that all others have their turn.
    pub(super) fn goes_on(&mut self, wants: &BTreeMap<Key, Want>) -> bool {
        self.up_to.take_if(|first| !wants.contains_key(first)).is_some()
    }
}

impl Attempt {
    /// Gives locks behind a document back, for which it waits: nobody who locks in order waits for somebody who waits for it.
    pub(super) async fn give_back_behind(&self, first: &Key, wants: &mut BTreeMap<Key, Want>) {
        let back: Vec<(Key, Held)> = {
            let locks = &mut *self.locks.lock();
            // A placeholder would have to be deleted: where two wait for each other after all, the older one wounds.
            let is_behind = |key: &Key, held: &mut Held| key > first && !held.before.absent;
            let back: Vec<_> = locks.held.extract_if(.., is_behind).collect();
            locks.uncertain.extend(back.iter().map(|(key, _)| key.clone()));
            back
        };
        if back.is_empty() {
            return;
        }
        cov_mark::hit!(locks_are_given_back_in_order);
        let voids: Vec<Write> = back.iter().map(|(key, lock)| lock.void(key)).collect();
        let outcomes = self.engine.write_all(&voids).await;
        for ((key, _), outcome) in back.into_iter().zip(outcomes) {
            self.working.lock().forget_read(&key);
            if matches!(outcome, Outcome::Applied(_)) {
                self.locks.lock().uncertain.remove(&key);
            }
            self.engine.live_attempts.release([&key]);
            wants.insert(key, Want::default());
        }
    }
}
