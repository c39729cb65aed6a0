//! A staged transaction whose owner is dead is decided by its participants: every lock is touched, or one that is missing is
//! fenced. Readers look behind one, too.

use std::collections::BTreeMap;
use std::sync::Arc;

use txn_protocol::document::View;
use txn_protocol::ids::AttemptId;
use txn_protocol::record::{Participant, Record, State};
use txn_protocol::rule::Rule;
use txn_protocol::rules::apply::is_locked_by;
use txn_protocol::rules::conflict::{HolderState, Requester};
use txn_protocol::rules::staged::{
    Probed, Probing, StagedReading, Verdict, is_locked, probing, staged_reading, verdict,
};

use super::Engine;
use super::attempt_error::AttemptError;
use super::deadline::Deadline;
use super::failure_detector::{LookedAt, NO_NODE_LAGS_FOR};
use super::holder::{Decided, Holding, Lock};
use super::store_access::{Look, ReadPreference};
use super::transaction_table::RecordLookup;
use super::wait_reason::WaitReason;
use crate::error::Error;
use crate::store::{Key, Outcome, Source, Write, WriteOp};

/// How often a fence is tried at once where placeholders come and go: who comes back later would meet the next one.
const FENCE_TRIES: u32 = 3;

/// What one look at the participants asks for.
#[derive(Default)]
struct Probe {
    known: Vec<Probed>,
    touches: Vec<Write>,
    fences: Vec<Write>,
    /// Documents, each with the incarnation of the participant's collection.
    absences: Vec<(Key, u64)>,
    /// Placeholders of others.
    placeholders: Vec<Lock>,
    /// Why participants cannot be looked at, now or later. Of each nothing is known.
    broken: Vec<Error>,
}

impl Probe {
    /// The verdict, or what keeps it from ever being one: where all the others are locked it is up to what is broken.
    fn verdict(self) -> Result<Verdict, Error> {
        let open = self.known.iter().filter(|known| **known == Probed::Open).count();
        let is_up_to_broken = open == self.broken.len();
        match (verdict(self.known), self.broken.into_iter().next()) {
            (Verdict::GoOn, Some(error)) if is_up_to_broken => Err(error),
            (verdict, _) => Ok(verdict),
        }
    }
}

impl Engine {
    /// For readers, to whom a staged record says nothing: its participants are looked at, and then the record again. Where all of
    /// them are locked, waits for the owner's mark, and takes its place if it is dead. `views`: the documents that
    /// are read. Returns of each whose record was staged whether every participant carried its lock, looked at between the two reads
    /// of the record; the later one takes the place of the first in `records`.
    pub(super) async fn look_behind_staged(
        &self,
        records: &mut BTreeMap<AttemptId, RecordLookup>,
        keys: &[Key],
        views: &[View],
        from: ReadPreference,
        deadline: &Deadline,
    ) -> Result<BTreeMap<AttemptId, bool>, AttemptError> {
        let mut all_locked = BTreeMap::new();
        for (tid, found) in records {
            let Some(record) = found.record.clone().filter(|one| one.state == State::Staged) else {
                continue;
            };
            let is_locked = self.is_all_locked(&record, from).await;
            all_locked.insert(*tid, is_locked);
            if self.rules.decides(Rule::ReadStagedAgain) {
                *found = self.record_of(*tid, from, deadline).await?;
            }
            let locks = keys.iter().zip(views).filter(|(_, view)| view.holder() == Some(*tid));
            let locks = locks.map(|(key, view)| Lock { key: key.clone(), view: view.clone() });
            let locks: Vec<Lock> = locks.collect();
            let mut backoff = self.backoff();
            while staged_reading(&self.rules, is_locked, found.state(), false)
                == StagedReading::AwaitMark
            {
                cov_mark::hit!(reader_awaits_the_mark);
                let Some(first) = locks.first().map(|lock| lock.key.clone()) else { break };
                let mark = WaitReason::Others { key: first, holder: *tid };
                self.pause(deadline, &mut backoff, mark).await?;
                let asked = self.now();
                *found = self.record_of(*tid, from, deadline).await?;
                if found.state() == HolderState::Record(State::Staged) {
                    let (at, found) = (LookedAt { asked, answered: self.now() }, found.clone());
                    let locks = locks.clone();
                    let holding = Holding { holder: *tid, locks, found, at, whole: false };
                    self.judge(Requester::Patient, &holding, deadline).await?;
                }
            }
        }
        Ok(all_locked)
    }

    /// Whether every participant carries its lock. One that cannot be looked at may.
    async fn is_all_locked(&self, record: &Record, from: ReadPreference) -> bool {
        let keys: Vec<Key> = record.participants.iter().map(Participant::key).collect();
        let participants: Vec<&Participant> = record.participants.iter().collect();
        let looks = self.look_at(&keys, from).await;
        let looks = self.identify_collections(&participants, looks).await;
        record.participants.iter().zip(looks).all(|(participant, (look, elsewhere))| match look {
            // The document may have been locked in the dropped collection.
            Look::Seen(_) if elsewhere && self.rules.decides(Rule::SameCollection) => true,
            Look::Seen(view) => is_locked(&self.rules, record.tid, participant, &view),
            Look::Missing | Look::Later(_) | Look::Broken(_) => true,
        })
    }

    /// Looks once at every participant, and decides the record by what is acknowledged about them; none if that was not enough,
    /// or the record was decided by somebody else: it has to be read again.
    #[tracing::instrument(level = "debug", skip_all, fields(%tid))]
    pub(super) async fn decide_staged(
        &self,
        tid: AttemptId,
        found: &RecordLookup,
        by: Requester,
        why: &str,
        deadline: &Deadline,
    ) -> Result<Option<Decided>, AttemptError> {
        let (Some(record), Some(version)) = (&found.record, found.version()) else {
            return Ok(None);
        };
        let decided = match self.probe(record, by, deadline).await?.verdict()? {
            Verdict::GoOn => return Ok(None),
            Verdict::Commit => {
                let (state, modified_at) = (State::Committed, self.unix_millis());
                Record { state, modified_at, ..Record::clone(record) }
            }
            Verdict::Abort => self.aborted_record(tid, why),
        };
        let source = decided.encode().map_err(|e| Error::damaged(e.to_string()))?;
        let write = WriteOp::Replace(source, version);
        match self.write_record(tid, &write, deadline).await? {
            Outcome::Applied(_) if decided.state == State::Aborted => {
                cov_mark::hit!(staged_transaction_fenced);
                self.aborted.insert(tid);
                self.live_attempts.wound(tid);
                Ok(Some(Decided::Aborted))
            }
            Outcome::Applied(version) => {
                cov_mark::hit!(staged_transaction_recovered);
                Ok(Some(Decided::Committed { record: Arc::new(decided), version }))
            }
            _ => Ok(None),
        }
    }

    /// What is proven of the participants: that each lock stands, or that one of them never will.
    async fn probe(
        &self,
        record: &Record,
        by: Requester,
        deadline: &Deadline,
    ) -> Result<Probe, AttemptError> {
        let acknowledged = async |writes: &[Write], proves: Probed| {
            let outcomes = self.write_all(writes).await.into_iter();
            outcomes.map(move |outcome| match outcome {
                Outcome::Applied(_) => proves,
                _ => Probed::Open,
            })
        };
        for _ in 0..FENCE_TRIES {
            let mut probe = self.look_at_staged(record, by).await;
            if probe.known.contains(&Probed::Fenced) {
                return Ok(probe);
            }
            // One that is shut out is enough.
            let is_fenced = if let Some(fence) = probe.fences.first() {
                probe.known.extend(acknowledged(std::slice::from_ref(fence), Probed::Fenced).await);
                return Ok(probe);
            } else if let Some((key, incarnation)) = probe.absences.first() {
                self.prove_absence(key, *incarnation, deadline).await?
            } else if let Some(lock) = probe.placeholders.first() {
                self.clear_placeholder(lock, deadline).await?
            } else {
                if !probe.known.contains(&Probed::Open) {
                    probe.known.extend(acknowledged(&probe.touches, Probed::Locked).await);
                }
                return Ok(probe);
            };
            if is_fenced {
                probe.known.push(Probed::Fenced);
                return Ok(probe);
            }
        }
        Ok(Probe { known: vec![Probed::Open], ..Probe::default() })
    }

    async fn look_at_staged(&self, record: &Record, by: Requester) -> Probe {
        let participants: BTreeMap<Key, &Participant> =
            record.participants.iter().map(|one| (one.key(), one)).collect();
        let keys: Vec<Key> = participants.keys().cloned().collect();
        let looks = self.look_at(&keys, ReadPreference::Primary).await;
        let of: Vec<&Participant> = participants.values().copied().collect();
        let looks = self.identify_collections(&of, looks).await;
        let mut probe = Probe::default();
        for ((key, participant), (look, elsewhere)) in participants.into_iter().zip(looks) {
            let view = match look {
                Look::Seen(view) => view,
                Look::Later(_) => {
                    probe.known.push(Probed::Open);
                    continue;
                }
                Look::Missing => {
                    probe.known.push(self.probe_lost(participant, false).await);
                    continue;
                }
                Look::Broken(error) => {
                    probe.known.push(Probed::Open);
                    probe.broken.push(error);
                    continue;
                }
            };
            let acknowledged = self.live_attempts.has_placeholder(&key, &view);
            let Participant { expected, .. } = *participant;
            let step = probing(&self.rules, record.tid, expected, &view, acknowledged, elsewhere);
            let touch = |key, source: &Source, version| {
                Write::new(key, WriteOp::Replace(source.clone(), version))
            };
            match (step, &view) {
                (Probing::Known(known), _) => {
                    if acknowledged {
                        cov_mark::hit!(own_placeholder_is_a_fence);
                    }
                    probe.known.push(known);
                }
                (Probing::TouchLock(version), View::Present { source, .. }) => {
                    probe.touches.push(touch(key, source, version));
                }
                (Probing::Fence(version), View::Present { source, .. }) => {
                    probe.fences.push(touch(key, source, version));
                }
                // Not acknowledged yet: who asks settles it next, and would abort itself here.
                (Probing::Decide(holder), _) if by.tid() == Some(holder) => {
                    probe.known.push(Probed::Open);
                }
                (Probing::Decide(_), _) => probe.placeholders.push(Lock { key, view }),
                (Probing::Elsewhere, _) => {
                    probe.known.push(self.probe_lost(participant, true).await);
                }
                (Probing::ProveAbsence | Probing::TouchLock(_) | Probing::Fence(_), _) => {
                    probe.absences.push((key, participant.incarnation()));
                }
            }
        }
        probe
    }

    /// A participant whose collection is missing, or was made again. Once the collection is gone
    /// for good, the other participants decide: the lock cannot land there any more, but it may
    /// have been acknowledged.
    async fn probe_lost(&self, participant: &Participant, made_again: bool) -> Probed {
        let (name, incarnation) = (&participant.collection, participant.incarnation());
        let missing = self.liveness.misses(name, incarnation, self.now());
        if missing >= NO_NODE_LAGS_FOR && (made_again || self.is_gone(name).await) {
            cov_mark::hit!(staged_over_a_collection_that_is_gone);
            return Probed::Locked;
        }
        Probed::Open
    }

    /// Decides the holder of a placeholder, whatever its age, and applies it there or takes the placeholder off. Returns
    /// whether it was taken off by an acknowledged deletion, which is a fence; else the document has to be looked at again.
    async fn clear_placeholder(
        &self,
        lock: &Lock,
        deadline: &Deadline,
    ) -> Result<bool, AttemptError> {
        cov_mark::hit!(placeholder_in_the_way_of_a_fence);
        let Some(holder) = lock.view.holder() else { return Ok(false) };
        let found = self.record_of(holder, ReadPreference::Primary, deadline).await?;
        let is_its = |participant: &Participant| {
            participant.key() == lock.key
                && is_locked_by(&self.rules, participant, holder, &lock.view)
        };
        let why = "its placeholder was in the way of who recovered another transaction";
        match self.decide_by_table(holder, found, why, deadline).await? {
            Some(Decided::Committed { record, .. }) if record.participants.iter().any(is_its) => {
                let wanted = [lock.key.clone()].into();
                let mut apply = self.begin_apply(record, BTreeMap::new(), wanted, None)?;
                apply.leave_out_unwanted();
                self.round(&mut apply, false, deadline).await?;
                if let Some(error) = self.end_apply(apply).unapplied.remove(&lock.key) {
                    tracing::debug!(%holder, document = %lock.key, %error, "not applied yet");
                }
                Ok(false)
            }
            Some(_) => Ok(self.unlock(&lock.key, &lock.view, holder).await?),
            None => {
                let message = "a placeholder stands there under a transaction that was staged, which inserts nothing";
                Err(Error::damaged(message).at(&lock.key).in_transaction(holder).into())
            }
        }
    }
}
