//! Applies a committed transaction to its participants, round by round.
//!
//! Owners and recovering processes run the same rounds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::engine::apply::Applier;
use crate::engine::apply::progress::{Applied, Apply, Unapplied};
use crate::engine::apply::step_write::step_write;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::holders::foreign_lock::{ForeignLock, by_holder};
use crate::engine::store::store_access::{Look, ReadPreference};
use crate::engine::table::own_record::OwnRecord;
use crate::engine::wait_reason::WaitReason;
use crate::error::Error;
use crate::event::DamageCause;
use txn_protocol::document::{Stored, View};
use txn_protocol::ids::AttemptId;
use txn_protocol::machines::roll_forward::{RollForward, roll_forward};
use txn_protocol::record::{Participant, Record, State};
use txn_protocol::rule::{Rule, Rules};
use txn_protocol::rules::apply::{Applying, is_locked_by};
use txn_store::{Key, Outcome, Write, WriteOp};

/// The writes and checks of one round.
#[derive(Default)]
struct Round {
    writes: Vec<Write>,
    absences: Vec<Key>,
    held: Vec<ForeignLock>,
    overtaken: BTreeSet<Key>,
    unclear: BTreeMap<Key, Applying>,
    /// Participants whose collection was dropped and made again.
    elsewhere: BTreeSet<Key>,
    /// The new contents of documents that are not deleted.
    contents: BTreeMap<Key, Stored>,
    /// The next step of each participant.
    steps: BTreeMap<Key, Applying>,
}

impl Applier {
    /// Begins to apply a committed transaction.
    ///
    /// Each participant is applied by its own acknowledged write, so a blocked participant delays
    /// no other participant. For a finished transaction the apply checks only the `wanted`
    /// participants.
    ///
    /// `known`: the caller's knowledge of participants, by its own acknowledged writes. `own`: the
    /// record, if the caller owns the transaction.
    pub(crate) fn begin_apply(
        &self,
        record: Arc<Record>,
        known: BTreeMap<Key, View>,
        wanted: BTreeSet<Key>,
        own: Option<Arc<OwnRecord>>,
    ) -> Result<Apply, Error> {
        let commit = record.commit_version.ok_or_else(|| {
            Error::damaged("the committed record has no commit version").in_transaction(record.tid)
        })?;
        let mut pending = record.by_key();
        pending.retain(|key, _| record.state == State::Committed || wanted.contains(key));
        // Within this process, only the owner applies a live transaction.
        let is_own = self.live_attempts.is_live(record.tid);
        Ok(Apply {
            commit,
            wanted,
            pending,
            locked: known.clone(),
            known,
            blocked: BTreeMap::new(),
            in_the_way: VecDeque::new(),
            unapplied: Unapplied::new(),
            lost: BTreeSet::new(),
            is_for_a_retry: false,
            contended: BTreeSet::new(),
            damages: BTreeMap::new(),
            backoff: self.context.backoff(),
            looks_again: is_own.then(|| self.context.now() + self.context.config.lease / 4),
            began: self.context.now(),
            own,
            relocked: BTreeMap::new(),
            never_applied: BTreeSet::new(),
            deleted: BTreeSet::new(),
            elsewhere: BTreeSet::new(),
            is_finished: record.state == State::Finished,
            on_settled: None,
            record,
        })
    }

    /// Runs one round: reads each participant, and sends its next write.
    ///
    /// With `resolves_holders`, the round collects the locks of holders to resolve first. Without
    /// it, the apply waits for these holders.
    pub(crate) async fn round(
        self: &Arc<Self>,
        apply: &mut Apply,
        resolves_holders: bool,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        apply.blocked.clear();
        self.look_at_participants(apply).await;
        let mut round = self.next_steps(apply);
        self.carry_out(apply, &mut round).await;
        self.settle_unclear(apply, std::mem::take(&mut round.unclear), deadline).await;
        for key in &round.elsewhere {
            let incarnation = apply.recorded(key).map_or(0, Participant::incarnation);
            self.report_lost(apply, key, incarnation, true, &mut BTreeMap::new()).await;
        }
        for key in &round.absences {
            let incarnation = apply.recorded(key).map_or(0, Participant::incarnation);
            match self.prove_absence(key, incarnation, deadline).await {
                Ok(true) => drop(apply.pending.remove(key)),
                Ok(false) => drop(apply.blocked.insert(key.clone(), changing())),
                Err(AttemptError::Fail(error)) => apply.give_up(key, error),
                Err(retry) => return Err(retry),
            }
        }
        let left = round.steps.iter().filter(|(key, _)| apply.pending.contains_key(*key));
        let next = roll_forward(left.map(|(_, step)| *step));
        if resolves_holders && next == RollForward::ResolveHolders && apply.blocked.is_empty() {
            apply.in_the_way = by_holder(round.held).into_values().collect();
        } else {
            apply.wait_for(&round.held, |holder| self.verdicts.label_of(holder));
        }
        apply.note_settled();
        Ok(())
    }

    /// Waits for the next round, and returns whether to run the round.
    ///
    /// The apply ends if no time is left, or only unwanted participants that are blocked.
    pub(crate) async fn goes_on(
        &self,
        apply: &mut Apply,
        deadline: &Deadline,
    ) -> Result<bool, AttemptError> {
        apply.leave_contended();
        let is_waited_for = |key| apply.wanted.contains(key) || !apply.blocked.contains_key(key);
        if !apply.pending.keys().any(is_waited_for) {
            return Ok(false);
        }
        apply.known.clear();
        apply.elsewhere.clear();
        if apply.looks_again.is_some_and(|at| self.context.now() >= at) {
            let soon = self.context.now() + self.context.config.lease / 4;
            apply.looks_again = Some(soon);
            if let Err(error) = self.keep_record(&apply.record, &deadline.at_most(soon)).await {
                tracing::debug!(tid = %apply.record.tid, why = %error.into_error(), "the record could not be read");
            }
        }
        let reason = apply.blocked.values().next().cloned().unwrap_or_else(changing);
        match self.context.pause(deadline, &mut apply.backoff, reason).await {
            Ok(()) => Ok(true),
            Err(AttemptError::Fail(_)) => Ok(false),
            Err(retry) => Err(retry),
        }
    }

    /// Ends the apply, and returns the participants that were not applied.
    pub(crate) fn end_apply(&self, mut apply: Apply) -> Applied {
        let pending = std::mem::take(&mut apply.pending);
        apply.contended.retain(|key| pending.contains_key(key));
        for key in pending.into_keys() {
            let reason = apply.blocked.remove(&key).unwrap_or_else(changing);
            apply.give_up(&key, reason.into_error());
        }
        self.emit_damage(&apply);
        let Apply { unapplied, lost, contended, .. } = apply;
        Applied { unapplied, lost, contended }
    }

    /// Reads the participants that have no view yet.
    async fn look_at_participants(&self, apply: &mut Apply) {
        let tid = apply.record.tid;
        let record = apply.record.clone();
        let is_unknown = |(key, _): &(&Key, &usize)| !apply.known.contains_key(*key);
        let unread: Vec<(Key, &Participant)> = apply
            .pending
            .iter()
            .filter(is_unknown)
            .map(|(key, index)| (key.clone(), &record.participants[*index]))
            .collect();
        let (keys, participants): (Vec<Key>, Vec<&Participant>) = unread.into_iter().unzip();
        let looks = self.store.look_at(&keys, ReadPreference::Primary).await;
        let looks = self.identify_collections(&participants, looks).await;
        let mut gone = BTreeMap::new();
        for ((key, participant), (look, is_elsewhere)) in
            keys.into_iter().zip(participants).zip(looks)
        {
            match look {
                Look::Seen(view) => {
                    if overwritten(
                        &self.context.rules,
                        tid,
                        participant,
                        apply.locked.get(&key),
                        &view,
                    ) {
                        self.emit_overwritten(tid, &key);
                    }
                    if is_elsewhere {
                        apply.elsewhere.insert(key.clone());
                    }
                    apply.known.insert(key, view);
                }
                Look::Later(why) => {
                    apply.blocked.insert(key, WaitReason::Store(why));
                }
                Look::Missing => {
                    let incarnation = participant.incarnation();
                    self.report_lost(apply, &key, incarnation, false, &mut gone).await;
                }
                Look::Broken(error) => apply.give_up(&key, error),
            }
        }
    }

    /// Chooses the next step of each participant, by its current view.
    fn next_steps(&self, apply: &mut Apply) -> Round {
        let mut round = Round::default();
        for (key, index) in apply.pending.clone() {
            let Some(view) = apply.known.get(&key) else { continue };
            let step = apply.step(&self.context.rules, index, &key, view);
            round.steps.insert(key.clone(), step);
            if matches!(step, Applying::Overtaken(_)) {
                round.overtaken.insert(key.clone());
            }
            let mut content = None;
            let op = step_write(step, view, |before| {
                let image = apply.record.images[index].clone().unwrap_or_default();
                content.insert(self.recent.committed(before, apply.commit, &image)).clone()
            });
            if let Some(content) = content {
                round.contents.insert(key.clone(), content);
            }
            match (op, step) {
                (Some(op), _) => round.writes.push(Write::new(key, op)),
                (None, Applying::ProveAbsence) => round.absences.push(key),
                (None, Applying::Held(_)) => {
                    round.held.push(ForeignLock { view: view.clone(), key });
                }
                (None, Applying::Unclear(_) | Applying::PerhapsOvertaken(_)) => {
                    round.unclear.insert(key, step);
                }
                (None, Applying::Elsewhere) => drop(round.elsewhere.insert(key)),
                (None, Applying::Damaged) => {
                    let why = "another client wrote the document while it was locked";
                    apply.never(&key, DamageCause::LockBypassed, why);
                }
                (None, _) => {
                    apply.pending.remove(&key);
                }
            }
        }
        round
    }

    /// Sends the writes of a round. The next round reads every document without an acknowledgement.
    async fn carry_out(&self, apply: &mut Apply, round: &mut Round) {
        if round.writes.is_empty() {
            return;
        }
        for (write, outcome) in round.writes.iter().zip(self.store.write_all(&round.writes).await) {
            let key = &write.key;
            match outcome {
                Outcome::Applied(version) => {
                    apply.pending.remove(key);
                    match (round.contents.remove(key), &write.op) {
                        (Some(stored), WriteOp::Replace(source, _)) => {
                            self.hot.cache.applied(
                                key,
                                version,
                                source.clone(),
                                stored,
                                self.context.now(),
                            );
                        }
                        _ => self.hot.cache.forget(key),
                    }
                    if round.overtaken.contains(key) {
                        self.emit_overtaken(apply.record.tid, key);
                    }
                }
                Outcome::Conflict | Outcome::Unknown(_)
                    if !self.context.rules.decides(Rule::ApplyAcknowledged) =>
                {
                    apply.pending.remove(key);
                }
                // The next read shows the document, and whether the collection is gone.
                Outcome::Conflict | Outcome::MissingCollection => {
                    if let Some(Applying::Touch(_)) = round.steps.get(key) {
                        apply.contended.insert(key.clone());
                    }
                }
                Outcome::Rejected(why) | Outcome::RejectedInDoubt(why) | Outcome::Unknown(why) => {
                    apply.block(key, WaitReason::Store(why));
                }
                refused => {
                    let error = Error::from_refused(&refused, key, "apply a committed write");
                    apply.never(key, DamageCause::NotApplicable, &error.to_string());
                }
            }
        }
    }
}

fn changing() -> WaitReason {
    WaitReason::Store("its documents are being changed".to_owned())
}

/// Whether a plain client changed the content under the participant's lock.
fn overwritten(
    rules: &Rules,
    tid: AttemptId,
    participant: &Participant,
    locked: Option<&View>,
    now: &View,
) -> bool {
    let (Some(View::Present { stored: before, .. }), View::Present { stored, .. }) = (locked, now)
    else {
        return false;
    };
    is_locked_by(rules, participant, tid, now) && stored.image != before.image
}
