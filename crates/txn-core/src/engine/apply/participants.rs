//! Applies a committed transaction to its participants, round by round.
//!
//! Owners and recovering processes run the same rounds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::clock::Backoff;
use crate::engine::Engine;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::recovery::holder::{Lock, by_holder};
use crate::engine::store::store_access::{Look, ReadPreference};
use crate::engine::table::own_record::OwnRecord;
use crate::engine::wait_reason::WaitReason;
use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::store::{Key, Outcome, Version, Write, WriteOp};
use txn_protocol::document::{Stored, View};
use txn_protocol::ids::{AttemptId, CommitVersion};
use txn_protocol::machines::roll_forward::{RollForward, roll_forward};
use txn_protocol::record::{Op, Participant, Record, State};
use txn_protocol::rule::{Rule, Rules};
use txn_protocol::rules::apply::{Applying, Committed, applying, is_locked_by};

/// The participants without an acknowledged apply, each with the reason.
///
/// Acknowledged writes applied all other participants.
pub(crate) type Unapplied = BTreeMap<Key, Error>;

pub(crate) struct Applied {
    pub(crate) unapplied: Unapplied,
    /// Participants whose commit is lost with their collection.
    pub(crate) lost: BTreeSet<Key>,
}

/// Receives documents as soon as an apply has settled them.
pub(crate) type OnSettled = Box<dyn Fn(&BTreeSet<Key>) + Send + Sync>;

/// The progress of one apply, kept between rounds.
pub(crate) struct Apply {
    record: Arc<Record>,
    pub(in crate::engine) commit: CommitVersion,
    /// The participants that the caller waits for. Blocked participants outside of this set are
    /// left to the janitor.
    wanted: BTreeSet<Key>,
    /// The unsettled participants, with their indices in the record.
    pending: BTreeMap<Key, usize>,
    /// The views of participants in this round. The first round starts with the caller's views.
    known: BTreeMap<Key, View>,
    /// The participants as the owner locked them.
    locked: BTreeMap<Key, View>,
    /// The blocked participants of this round, with the reason.
    blocked: BTreeMap<Key, WaitReason>,
    /// Foreign locks to resolve before the next round, by holder.
    in_the_way: VecDeque<Vec<Lock>>,
    unapplied: Unapplied,
    lost: BTreeSet<Key>,
    /// Short descriptions of damaged participants, for events.
    damages: BTreeMap<Key, String>,
    backoff: Backoff,
    /// When the owner next checks that the record exists.
    looks_again: Option<Duration>,
    /// The start of the apply, on the monotonic clock.
    pub(in crate::engine) began: Duration,
    /// The committed record of an owner. `None` in other processes, and after another process may
    /// have applied the transaction.
    pub(in crate::engine) own: Option<Arc<OwnRecord>>,
    /// Placeholders that the owner wrote, acknowledged, in place of lost locks.
    pub(in crate::engine) relocked: BTreeMap<Key, Version>,
    /// Participants that the owner never applied and other transactions wrote since.
    pub(in crate::engine) never_applied: BTreeSet<Key>,
    /// Participants that a later transaction deleted, by its record.
    pub(in crate::engine) deleted: BTreeSet<Key>,
    /// Participants whose collection was made again, as seen in this round.
    elsewhere: BTreeSet<Key>,
    /// Whether the record is finished.
    pub(in crate::engine) is_finished: bool,
    on_settled: Option<OnSettled>,
}

/// The writes and checks of one round.
#[derive(Default)]
struct Round {
    writes: Vec<Write>,
    absences: Vec<Key>,
    held: Vec<Lock>,
    overtaken: BTreeSet<Key>,
    unclear: BTreeMap<Key, Applying>,
    /// Participants whose collection was dropped and made again.
    elsewhere: BTreeSet<Key>,
    /// The new contents of documents that are not deleted.
    contents: BTreeMap<Key, Stored>,
    /// The next step of each participant.
    steps: BTreeMap<Key, Applying>,
}

impl Apply {
    pub(crate) fn give_up(&mut self, key: &Key, error: Error) {
        self.pending.remove(key);
        self.unapplied.insert(key.clone(), error.at(key).in_transaction(self.record.tid));
    }

    /// Sets the callback for wanted documents that are settled.
    pub(crate) fn tell_settled(&mut self, on_settled: OnSettled) {
        self.on_settled = Some(on_settled);
    }

    /// Removes settled documents from `wanted`, and passes them to the callback.
    fn note_settled(&mut self) {
        let Some(on_settled) = &self.on_settled else { return };
        let pending = &self.pending;
        let settled = self.wanted.extract_if(.., |key| !pending.contains_key(key));
        let settled: BTreeSet<Key> = settled.collect();
        if !settled.is_empty() {
            on_settled(&settled);
        }
    }

    /// Drops the unwanted participants, which other transactions apply.
    pub(crate) fn leave_out_unwanted(&mut self) {
        self.pending.retain(|key, _| self.wanted.contains(key));
    }

    pub(crate) fn wait_for<'l>(&mut self, held: impl IntoIterator<Item = &'l Lock>) {
        for Lock { key, view } in held {
            if let Some(holder) = view.holder() {
                let others = WaitReason::Others { key: key.clone(), holder };
                self.blocked.insert(key.clone(), others);
            }
        }
    }

    /// Returns the locks of the next holder to resolve.
    pub(crate) fn next_in_the_way(&mut self) -> Option<Vec<Lock>> {
        self.in_the_way.pop_front()
    }

    /// Settles a participant after the acknowledged deletion of its void placeholder.
    ///
    /// The deletion proves that the document is absent.
    pub(crate) fn prove_absent(&mut self, key: &Key) {
        if let Some(View::Present { stored, .. }) = self.known.get(key)
            && stored.absent
        {
            self.pending.remove(key);
        }
    }

    pub(in crate::engine) fn tid(&self) -> AttemptId {
        self.record.tid
    }

    /// The recorded participant of an unsettled document.
    pub(in crate::engine) fn recorded(&self, key: &Key) -> Option<&Participant> {
        self.pending.get(key).map(|index| &self.record.participants[*index])
    }

    /// Drops a participant whose commit is lost with its collection.
    pub(in crate::engine) fn lose(&mut self, key: &Key) {
        self.pending.remove(key);
        self.lost.insert(key.clone());
    }

    pub(in crate::engine) fn block(&mut self, key: &Key, why: WaitReason) {
        self.blocked.insert(key.clone(), why);
    }

    /// Whether the current document is only a placeholder.
    pub(in crate::engine) fn is_bare(&self, key: &Key) -> bool {
        matches!(self.known.get(key), Some(View::Present { stored, .. }) if stored.is_bare_placeholder())
    }

    /// The participant as recorded, or as the owner locked the document again.
    fn participant(&self, index: usize, key: &Key) -> Participant {
        let participant = self.record.participants[index].clone();
        match self.relocked.get(key) {
            None => participant,
            Some(version) => {
                let placeholder = Some(*version);
                Participant { op: Op::Insert, placeholder, before: None, ..participant }
            }
        }
    }

    fn step(&self, rules: &Rules, index: usize, key: &Key, view: &View) -> Applying {
        let applied = self.is_finished || self.deleted.contains(key);
        let elsewhere = self.elsewhere.contains(key);
        let committed = Committed { tid: self.record.tid, commit: self.commit, applied, elsewhere };
        let participant = self.participant(index, key);
        match applying(rules, committed, &participant, self.locked.get(key), view) {
            Applying::PerhapsOvertaken(version) if self.never_applied.contains(key) => {
                Applying::Overtaken(version)
            }
            Applying::PerhapsOvertaken(version) if self.own.is_none() => Applying::Touch(version),
            step => step,
        }
    }

    pub(in crate::engine) fn never(&mut self, key: &Key, why: &str) {
        let message = format!("a committed transaction cannot be applied to it: {why}");
        self.damages.insert(key.clone(), why.to_owned());
        self.give_up(key, Error::damaged(message));
    }
}

impl Engine {
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
            Error::damaged("the committed record has no commit tid").in_transaction(record.tid)
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
            damages: BTreeMap::new(),
            backoff: self.backoff(),
            looks_again: is_own.then(|| self.now() + self.config.lease / 4),
            began: self.now(),
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
    /// With `helps`, the round collects the locks of holders to resolve first. Without `helps`, the
    /// apply waits for these holders.
    pub(crate) async fn round(
        &self,
        apply: &mut Apply,
        helps: bool,
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
        let turn = roll_forward(left.map(|(_, step)| *step));
        if helps && turn == RollForward::Help && apply.blocked.is_empty() {
            apply.in_the_way = by_holder(round.held).into_values().collect();
        } else {
            apply.wait_for(&round.held);
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
        let is_waited_for = |key| apply.wanted.contains(key) || !apply.blocked.contains_key(key);
        if !apply.pending.keys().any(is_waited_for) {
            return Ok(false);
        }
        apply.known.clear();
        apply.elsewhere.clear();
        if apply.looks_again.is_some_and(|at| self.now() >= at) {
            let soon = self.now() + self.config.lease / 4;
            apply.looks_again = Some(soon);
            if let Err(error) = self.keep_record(&apply.record, &deadline.at_most(soon)).await {
                tracing::debug!(tid = %apply.record.tid, why = %error.into_error(), "the record could not be read");
            }
        }
        let reason = apply.blocked.values().next().cloned().unwrap_or_else(changing);
        match self.pause(deadline, &mut apply.backoff, reason).await {
            Ok(()) => Ok(true),
            Err(AttemptError::Fail(_)) => Ok(false),
            Err(retry) => Err(retry),
        }
    }

    /// Ends the apply, and returns the participants that were not applied.
    pub(crate) fn end_apply(&self, mut apply: Apply) -> Applied {
        for key in std::mem::take(&mut apply.pending).into_keys() {
            let reason = apply.blocked.remove(&key).unwrap_or_else(changing);
            apply.give_up(&key, reason.into_error());
        }
        self.emit_damage(&apply);
        Applied { unapplied: apply.unapplied, lost: apply.lost }
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
        let looks = self.look_at(&keys, ReadPreference::Primary).await;
        let looks = self.identify_collections(&participants, looks).await;
        let mut gone = BTreeMap::new();
        for ((key, participant), (look, is_elsewhere)) in
            keys.into_iter().zip(participants).zip(looks)
        {
            match look {
                Look::Seen(view) => {
                    if overwritten(&self.rules, tid, participant, apply.locked.get(&key), &view) {
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
            let step = apply.step(&self.rules, index, &key, view);
            round.steps.insert(key.clone(), step);
            if matches!(step, Applying::Overtaken(_)) {
                round.overtaken.insert(key.clone());
            }
            let mut content = None;
            let op = self.step_write(step, view, |before| {
                let image = apply.record.images[index].clone().unwrap_or_default();
                content.insert(self.committed(before, apply.commit, &image)).clone()
            });
            if let Some(content) = content {
                round.contents.insert(key.clone(), content);
            }
            match (op, step) {
                (Some(op), _) => round.writes.push(Write::new(key, op)),
                (None, Applying::ProveAbsence) => round.absences.push(key),
                (None, Applying::Held(_)) => round.held.push(Lock { view: view.clone(), key }),
                (None, Applying::Unclear(_) | Applying::PerhapsOvertaken(_)) => {
                    round.unclear.insert(key, step);
                }
                (None, Applying::Elsewhere) => drop(round.elsewhere.insert(key)),
                (None, Applying::Damaged) => {
                    apply.never(&key, "another client wrote the document while it was locked");
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
        for (write, outcome) in round.writes.iter().zip(self.write_all(&round.writes).await) {
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
                                self.now(),
                            );
                        }
                        _ => self.hot.cache.forget(key),
                    }
                    if round.overtaken.contains(key) {
                        self.emit_overtaken(apply.record.tid, key);
                    }
                }
                Outcome::Conflict | Outcome::Unknown(_)
                    if !self.rules.decides(Rule::ApplyAcknowledged) =>
                {
                    apply.pending.remove(key);
                }
                // The next read shows the document, and whether the collection is gone.
                Outcome::Conflict | Outcome::MissingCollection => {}
                Outcome::Rejected(why) | Outcome::RejectedInDoubt(why) | Outcome::Unknown(why) => {
                    apply.block(key, WaitReason::Store(why));
                }
                refused => {
                    let error = Error::from_refused(&refused, key, "apply a committed write");
                    apply.never(key, &error.to_string());
                }
            }
        }
    }

    /// Returns the write of a step, if the step needs one.
    pub(in crate::engine) fn step_write(
        &self,
        step: Applying,
        view: &View,
        committed: impl FnOnce(&Stored) -> Stored,
    ) -> Option<WriteOp> {
        let View::Present { source, stored, .. } = view else { return None };
        match step {
            Applying::Write(version) => Some(WriteOp::Replace(committed(stored).encode(), version)),
            Applying::Delete(version) | Applying::RemovePlaceholder(version) => {
                Some(WriteOp::Delete(version))
            }
            Applying::Unlock(version) => {
                Some(WriteOp::Replace(stored.locked_by(None).encode(), version))
            }
            Applying::Touch(version) | Applying::Overtaken(version) => {
                Some(WriteOp::Replace(source.clone(), version))
            }
            Applying::ProveAbsence
            | Applying::Held(_)
            | Applying::Unclear(_)
            | Applying::PerhapsOvertaken(_)
            | Applying::Elsewhere
            | Applying::Done
            | Applying::Damaged => None,
        }
    }

    /// Emits the damage that an operator must inspect.
    fn emit_damage(&self, apply: &Apply) {
        let tid = apply.record.tid;
        for (document, error) in &apply.unapplied {
            if matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Misconfigured) {
                tracing::error!(%tid, %document, %error, "committed but not applied");
                let what = apply.damages.get(document).cloned();
                let what = what.unwrap_or_else(|| error.to_string());
                self.emit(&Event::Damaged { tid, document: document.clone(), what });
            }
        }
    }

    /// Reports that the commit overwrites a plain client's write.
    ///
    /// The plain client changed or deleted the document under the owner's lock.
    pub(in crate::engine) fn emit_overwritten(&self, tid: AttemptId, key: &Key) {
        tracing::error!(%tid, document = %key, "another client's write to a locked document is overwritten");
        let what =
            "another client wrote or deleted the locked document; the commit overwrites that";
        self.emit(&Event::Damaged { tid, document: key.clone(), what: what.to_owned() });
    }

    /// Reports a committed write that is lost for good.
    ///
    /// A plain client removed the lock, and another transaction committed on top of the old
    /// content. Only an operator can correct the document.
    fn emit_overtaken(&self, tid: AttemptId, key: &Key) {
        tracing::error!(%tid, document = %key, "a committed write is lost: another client took its lock off");
        let what = "another client took the lock off, and a later transaction wrote the document without what this \
                    one committed; that write is lost";
        self.emit(&Event::Damaged { tid, document: key.clone(), what: what.to_owned() });
    }

    /// Proves that a document is absent. Returns whether the proof succeeded.
    ///
    /// The engine creates a placeholder under an aborted tid, and deletes the placeholder. The
    /// store must acknowledge both writes. `incarnation`: the collection of the document; zero for
    /// any collection.
    pub(in crate::engine) async fn prove_absence(
        &self,
        key: &Key,
        incarnation: u64,
        deadline: &Deadline,
    ) -> Result<bool, AttemptError> {
        let absence_probe = self.absence_probe(deadline).await?;
        let source = Stored::placeholder(absence_probe).encode();
        let created = self.write_one(Write::new(key.clone(), WriteOp::Create(source))).await;
        let Outcome::Applied(version) = created else { return Ok(false) };
        let deleted = self.write_one(Write::new(key.clone(), WriteOp::Delete(version))).await;
        let is_here = incarnation == 0 || version.incarnation == incarnation;
        Ok(matches!(deleted, Outcome::Applied(_)) && is_here)
    }

    /// Returns a tid of today whose `aborted` record is acknowledged.
    async fn absence_probe(&self, deadline: &Deadline) -> Result<AttemptId, AttemptError> {
        let deadline = deadline.clone();
        let probe = self.shared(|engine| -> BoxFuture<'static, _> {
            Box::pin(async move {
                let mut absence_probe = engine.absence_probe.lock().await;
                let fresh = engine.start_id();
                if let Some(tid) = absence_probe.filter(|tid| tid.day() == fresh.day()) {
                    return Ok(tid);
                }
                let missing = crate::engine::table::transaction_table::RecordLookup::missing();
                let why = "marks placeholders that only prove an absence";
                engine.decide(fresh, missing, why, &deadline).await?;
                *absence_probe = Some(fresh);
                Ok(fresh)
            })
        });
        probe.await?
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
