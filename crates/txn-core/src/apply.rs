//! Applying a committed transaction to its members, and taking void locks off. Used by the owner and
//! by whoever recovers it.

use std::collections::{BTreeMap, BTreeSet};

use crate::document::{Stored, View};
use crate::engine::{Engine, From};
use crate::error::Error;
use crate::event::Event;
use crate::guard::Guard;
use crate::record::{Member, Record, State};
use crate::resolve::Met;
use crate::rules::apply::{Applying, applying, is_members_lock, voiding};
use crate::rules::conflict::{HolderState, Requester};
use crate::stop::{Hindrance, Patience, Stop};
use crate::store::{Key, Outcome, Version, Write, WriteOp};
use crate::tid::Tid;

/// What an apply could not do and never will.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stuck {
    pub(crate) document: Key,
    pub(crate) why: String,
}

/// What became of another holder of a member.
enum Aside {
    /// The member is certainly absent.
    Proven,
    LookAgain,
    Busy,
}

impl Engine {
    /// Applies a committed transaction of somebody else, and marks it finished.
    #[tracing::instrument(level = "debug", skip_all, fields(tid = %record.tid))]
    pub(crate) async fn replay(
        &self,
        record: &Record,
        version: Version,
        requester: Requester,
        patience: &Patience,
    ) -> Result<(), Stop> {
        let tid = record.tid;
        let open = record.state == State::Committed;
        let stuck = self.apply(record, BTreeMap::new(), requester, patience).await?;
        if let Some(stuck) = stuck.into_iter().next() {
            return Err(Error::damaged(format!(
                "a committed transaction can not be applied to it: {}",
                stuck.why
            ))
            .at(&stuck.document)
            .in_transaction(tid)
            .into());
        }
        if open {
            let documents = record.members.iter().map(Member::key).collect();
            self.tell(&Event::Replayed { tid, documents });
            self.finish(record, version, patience).await?;
        }
        Ok(())
    }

    /// Applies every member, each by an acknowledged write. `known`: what the caller knows of members by
    /// acknowledged writes of its own. `requester`: on whose behalf; one that holds locks itself must not wait
    /// for a younger holder, which may wait for it. Returns the members that are refused for good.
    pub(crate) async fn apply(
        &self,
        record: &Record,
        mut known: BTreeMap<Key, View>,
        requester: Requester,
        patience: &Patience,
    ) -> Result<Vec<Stuck>, Stop> {
        let tid = record.tid;
        let commit = record.commit_tid.ok_or_else(|| {
            Error::damaged("the committed record has no commit tid").in_transaction(tid)
        })?;
        let mut pending: BTreeMap<Key, usize> =
            record.members.iter().enumerate().map(|(i, member)| (member.key(), i)).collect();
        let mut stuck = Vec::new();
        let locked = known.clone();
        let mut backoff = self.backoff();
        loop {
            let unread: Vec<Key> =
                pending.keys().filter(|key| !known.contains_key(*key)).cloned().collect();
            let views = self.views(&unread, From::Primary, patience).await?;
            for (key, view) in unread.into_iter().zip(views) {
                let member = pending.get(&key).map(|index| &record.members[*index]);
                if member.is_some_and(|member| overwritten(tid, member, locked.get(&key), &view)) {
                    self.tell_of_overwritten(tid, &key);
                }
                known.insert(key, view);
            }
            let mut writes = Vec::new();
            let mut absences = Vec::new();
            let mut held = Vec::new();
            let mut overtaken = BTreeSet::new();
            let mut left: BTreeMap<Key, usize> = BTreeMap::new();
            for (key, index) in &pending {
                let Some(view) = known.get(key) else { continue };
                let step = applying(tid, commit, &record.members[*index], view);
                if matches!(step, Applying::Overtaken(_)) {
                    overtaken.insert(key.clone());
                }
                let op = self.step_write(step, view, |before| {
                    let image = record.images[*index].clone().unwrap_or_default();
                    self.committed(before, commit, &image)
                });
                match (op, step) {
                    (_, Applying::Touch(_)) if !Guard::TouchApplied.stands() => continue,
                    (Some(op), _) => writes.push(Write::new(key.clone(), op)),
                    (None, Applying::ProveAbsence) => absences.push(key.clone()),
                    (None, Applying::Held(holder)) => held.push((key.clone(), holder)),
                    (None, Applying::Damaged) => {
                        let why = "another client wrote the document while it was locked";
                        stuck.push(Stuck { document: key.clone(), why: why.to_owned() });
                        continue;
                    }
                    (None, _) => continue,
                }
                left.insert(key.clone(), *index);
            }
            let mut hindrance = None;
            let mut conflicts = false;
            for (write, outcome) in writes.iter().zip(self.write_all(&writes).await) {
                match outcome {
                    Outcome::Applied(_) => {
                        left.remove(&write.key);
                        if overtaken.contains(&write.key) {
                            self.tell_of_overtaken(tid, &write.key);
                        }
                    }
                    Outcome::Conflict | Outcome::Unknown(_)
                        if !Guard::ApplyAcknowledged.stands() =>
                    {
                        left.remove(&write.key);
                    }
                    Outcome::Conflict => conflicts = true,
                    Outcome::Rejected(why)
                    | Outcome::RejectedInDoubt(why)
                    | Outcome::Unknown(why) => {
                        hindrance = Some(Hindrance::Store(why));
                    }
                    refused => {
                        let error =
                            Error::from_refused(&refused, &write.key, "apply a committed write");
                        stuck.push(Stuck { document: write.key.clone(), why: error.to_string() });
                        left.remove(&write.key);
                    }
                }
            }
            for key in absences {
                if !Guard::ProveAbsence.stands() || self.prove_absence(&key, patience).await? {
                    left.remove(&key);
                }
            }
            // Only whoever has no lock left to take off helps others: two transactions, each with a forked
            // placeholder on a member of the other, would help each other without an end.
            if hindrance.is_none() && !conflicts {
                for (key, holder) in held {
                    let Some(view) = known.get(&key) else { continue };
                    match self.step_aside(requester, &key, view, holder, patience).await? {
                        Aside::Proven => {
                            left.remove(&key);
                        }
                        Aside::LookAgain => {}
                        Aside::Busy => hindrance = Some(Hindrance::Others { key, holder }),
                    }
                }
            }
            if left.is_empty() {
                for stuck in &stuck {
                    tracing::error!(%tid, document = %stuck.document, why = stuck.why, "committed but not applied");
                    let (document, what) = (stuck.document.clone(), stuck.why.clone());
                    self.tell(&Event::Damaged { tid, document, what });
                }
                return Ok(stuck);
            }
            let changing = left.keys().next().cloned().map(Hindrance::Changing);
            pending = left;
            known.clear();
            if let Some(hindrance) = hindrance.or(changing) {
                self.pause(patience, &mut backoff, hindrance).await?;
            }
        }
    }

    /// The write that a step asks for, if it asks for one.
    fn step_write(
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
            Applying::ProveAbsence | Applying::Held(_) | Applying::Done | Applying::Damaged => None,
        }
    }

    /// Another transaction holds a member that seems applied: it is decided first.
    async fn step_aside(
        &self,
        requester: Requester,
        key: &Key,
        view: &View,
        holder: Tid,
        patience: &Patience,
    ) -> Result<Aside, Stop> {
        let View::Present { version, stored, .. } = view else { return Ok(Aside::LookAgain) };
        let met = self.meet(requester, key, *version, holder, patience).await?;
        Ok(match met {
            Met::Busy => Aside::Busy,
            Met::Applied => Aside::LookAgain,
            // The acknowledged deletion of a placeholder of an aborted transaction proves the absence.
            Met::Void if self.unlock(key, view, holder).await? && stored.absent => Aside::Proven,
            Met::Void => Aside::LookAgain,
        })
    }

    /// Takes the void lock of an aborted transaction off, if it still stands as seen. Returns whether that was
    /// acknowledged.
    pub(crate) async fn unlock(&self, key: &Key, view: &View, holder: Tid) -> Result<bool, Error> {
        let step = voiding(view, holder);
        if step == Applying::Damaged {
            let message = "another client wrote content into the placeholder of a transaction";
            return Err(Error::damaged(message).at(key).in_transaction(holder));
        }
        if let Some(op) = self.step_write(step, view, Stored::clone)
            && let Outcome::Applied(_) = self.write_one(Write::new(key.clone(), op)).await
        {
            self.tell(&Event::Unlocked { tid: holder, document: key.clone() });
            return Ok(true);
        }
        Ok(false)
    }

    /// A plain client changed a document under the owner's lock: the commit's content takes its place, and
    /// that is said.
    fn tell_of_overwritten(&self, tid: Tid, key: &Key) {
        tracing::error!(%tid, document = %key, "another client's write to a locked document is overwritten");
        let what = "another client wrote the locked document; the commit overwrites that";
        self.tell(&Event::Damaged { tid, document: key.clone(), what: what.to_owned() });
    }

    /// A plain client took a lock off, and others committed on top of the old content. Nobody can mend that but a
    /// person, and nothing is left to do.
    fn tell_of_overtaken(&self, tid: Tid, key: &Key) {
        tracing::error!(%tid, document = %key, "a committed write is lost: another client took its lock off");
        let what = "another client took the lock off, and a later transaction wrote the document without what this \
                    one committed; that write is lost";
        self.tell(&Event::Damaged { tid, document: key.clone(), what: what.to_owned() });
    }

    /// Whether the document is certainly absent: a placeholder under an aborted tid was created and
    /// deleted, both acknowledged.
    async fn prove_absence(&self, key: &Key, patience: &Patience) -> Result<bool, Stop> {
        let tombstone = self.tombstone(patience).await?;
        let source = Stored::placeholder(tombstone).encode();
        let created = self.write_one(Write::new(key.clone(), WriteOp::Create(source))).await;
        let Outcome::Applied(version) = created else { return Ok(false) };
        let deleted = self.write_one(Write::new(key.clone(), WriteOp::Delete(version))).await;
        Ok(matches!(deleted, Outcome::Applied(_)))
    }

    /// A tid of today whose `aborted` record is acknowledged.
    async fn tombstone(&self, patience: &Patience) -> Result<Tid, Stop> {
        let mut tombstone = self.tombstone.lock().await;
        let fresh = self.tids.start();
        if let Some(tid) = tombstone.filter(|tid| tid.day() == fresh.day()) {
            return Ok(tid);
        }
        let missing = crate::table::Found::missing();
        self.decide(fresh, missing, "marks placeholders that only prove an absence", patience)
            .await?;
        *tombstone = Some(fresh);
        Ok(fresh)
    }

    /// Marks a committed transaction as finished: every one of its writes was acknowledged.
    pub(crate) async fn finish(
        &self,
        record: &Record,
        mut version: Version,
        patience: &Patience,
    ) -> Result<(), Stop> {
        let tid = record.tid;
        let finished =
            Record { state: State::Finished, modified_at: self.unix_millis(), ..record.clone() };
        let source = finished.encode().map_err(|e| Error::damaged(e.to_string()))?;
        let mut backoff = self.backoff();
        loop {
            let why = match self
                .write_record(tid, &WriteOp::Replace(source.clone(), version), patience)
                .await?
            {
                Outcome::Applied(_) | Outcome::MissingCollection => return Ok(()),
                Outcome::Conflict => "its record is being changed by others".to_owned(),
                Outcome::Rejected(why) | Outcome::RejectedInDoubt(why) | Outcome::Unknown(why) => {
                    why
                }
                refused => {
                    let key = self.table.record_key(tid);
                    return Err(Error::from_refused(&refused, &key, "finish a transaction").into());
                }
            };
            let found = self.record_of(tid, From::Primary, patience).await?;
            match (&found.record, found.at) {
                // Others finished it; its day may even be dropped since.
                _ if found.state == HolderState::Gone => return Ok(()),
                (Some(record), Some(_)) if record.state == State::Finished => return Ok(()),
                (Some(record), Some((now, _))) if record.state == State::Committed => version = now,
                _ => {
                    let message = "its committed record was removed or replaced by something else";
                    let key = self.table.record_key(tid);
                    return Err(Error::damaged(message).at(&key).in_transaction(tid).into());
                }
            }
            self.pause(patience, &mut backoff, Hindrance::Store(why)).await?;
        }
    }
}

/// Whether a plain client changed the content under the member's own lock since it was locked.
fn overwritten(tid: Tid, member: &Member, locked: Option<&View>, now: &View) -> bool {
    let (Some(View::Present { stored: before, .. }), View::Present { version, stored, .. }) =
        (locked, now)
    else {
        return false;
    };
    stored.lock == Some(tid)
        && is_members_lock(member, *version, stored)
        && stored.image != before.image
}
