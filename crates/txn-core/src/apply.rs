//! Applying a committed transaction to its members, and taking void locks off. Used by the owner and
//! by whoever recovers it.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::{Engine, From, Look, missing_collection};
use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::liveness::NO_NODE_LAGS_FOR;
use crate::resolve::{Lock, Met, by_holder};
use crate::stop::{Hindrance, Patience, Stop};
use crate::store::{CollectionSpec, Key, Outcome, Role, StoreErrorKind, Version, Write, WriteOp};
use txn_protocol::document::{Stored, View};
use txn_protocol::guard::Guard;
use txn_protocol::record::{Member, Record, State};
use txn_protocol::rules::apply::{Applying, applying, is_locked_by, voiding};
use txn_protocol::rules::conflict::Requester;
use txn_protocol::tid::Tid;

/// The members that were not applied, each with the reason. The others are, by acknowledged writes.
pub(crate) type Unsettled = BTreeMap<Key, Error>;

/// An apply under way.
struct Work<'a> {
    record: &'a Record,
    commit: Tid,
    /// What remains to be done, and where in the record it is.
    pending: BTreeMap<Key, usize>,
    /// What is known of members since the last round.
    known: BTreeMap<Key, View>,
    /// The members as the owner locked them.
    locked: BTreeMap<Key, View>,
    /// What is in the way of a member in this round.
    hindered: BTreeMap<Key, Hindrance>,
    unsettled: Unsettled,
    /// What is wrong with members, in short.
    damages: BTreeMap<Key, String>,
}

/// What a round of an apply sends and asks.
#[derive(Default)]
struct Round {
    writes: Vec<Write>,
    absences: Vec<Key>,
    held: Vec<Lock>,
    overtaken: BTreeSet<Key>,
}

impl Work<'_> {
    fn give_up(&mut self, key: &Key, error: Error) {
        self.pending.remove(key);
        self.unsettled.insert(key.clone(), error.at(key).in_transaction(self.record.tid));
    }

    fn wait_for<'l>(&mut self, held: impl IntoIterator<Item = &'l Lock>) {
        for Lock { key, view } in held {
            if let Some(holder) = view.holder() {
                let others = Hindrance::Others { key: key.clone(), holder };
                self.hindered.insert(key.clone(), others);
            }
        }
    }

    fn never(&mut self, key: &Key, why: &str) {
        let message = format!("a committed transaction can not be applied to it: {why}");
        self.damages.insert(key.clone(), why.to_owned());
        self.give_up(key, Error::damaged(message));
    }
}

/// How often a void lock is looked for again that somebody's touch moved: who looks late must not fail each time.
const UNLOCK_TRIES: u32 = 3;

impl Engine {
    /// Applies a committed transaction of somebody else, and marks it finished if nothing is left of it.
    #[tracing::instrument(level = "debug", skip_all, fields(tid = %record.tid))]
    pub(crate) async fn replay(
        &self,
        record: &Record,
        version: Version,
        wanted: &BTreeSet<Key>,
        requester: Requester,
        patience: &Patience,
    ) -> Result<Unsettled, Stop> {
        let tid = record.tid;
        let unsettled = self.apply(record, BTreeMap::new(), wanted, requester, patience).await?;
        if record.state == State::Committed && unsettled.is_empty() {
            let documents = record.members.iter().map(Member::key).collect();
            self.tell(&Event::Replayed { tid, documents });
            self.finish(record, version, patience).await?;
        }
        Ok(unsettled)
    }

    /// Applies the members of a transaction, each by an acknowledged write and each for itself: what hinders one does
    /// not keep the others from being applied. Of a finished transaction only those that are wanted are looked at.
    ///
    /// `known`: what the caller knows of members by acknowledged writes of its own. `wanted`: the members that are waited
    /// for; once they are settled, what is hindered is left to the janitor. `requester`: on whose behalf; one that holds
    /// locks itself must not wait for a younger holder, which may wait for it.
    pub(crate) async fn apply(
        &self,
        record: &Record,
        known: BTreeMap<Key, View>,
        wanted: &BTreeSet<Key>,
        requester: Requester,
        patience: &Patience,
    ) -> Result<Unsettled, Stop> {
        let commit = record.commit_tid.ok_or_else(|| {
            Error::damaged("the committed record has no commit tid").in_transaction(record.tid)
        })?;
        let mut pending = record.by_key();
        pending.retain(|key, _| record.state == State::Committed || wanted.contains(key));
        let mut work = Work {
            record,
            commit,
            pending,
            locked: known.clone(),
            known,
            hindered: BTreeMap::new(),
            unsettled: Unsettled::new(),
            damages: BTreeMap::new(),
        };
        // Only its owner applies it while it lives in this process.
        let is_own = self.locals.is_live(record.tid);
        let mut looks_again = self.now() + self.config.lease / 4;
        let mut backoff = self.backoff();
        loop {
            work.hindered.clear();
            self.look_at_members(&mut work).await;
            let round = self.next_steps(&mut work);
            let conflicts = self.carry_out(&mut work, &round).await;
            for key in &round.absences {
                if !Guard::ProveAbsence.stands() {
                    work.pending.remove(key);
                    continue;
                }
                match self.prove_absence(key, patience).await {
                    Ok(true) => drop(work.pending.remove(key)),
                    Ok(false) => drop(work.hindered.insert(key.clone(), changing())),
                    Err(Stop::Fail(error)) => work.give_up(key, error),
                    Err(retry) => return Err(retry),
                }
            }
            // Only whoever has no lock left to take off helps others: two transactions, each with a forked
            // placeholder on a member of the other, would help each other without an end.
            match patience.deeper() {
                Some(patience) if work.hindered.is_empty() && !conflicts => {
                    self.step_aside(&mut work, requester, round.held, &patience).await?;
                }
                _ => work.wait_for(&round.held),
            }
            let is_waited_for = |key| wanted.contains(key) || !work.hindered.contains_key(key);
            if !work.pending.keys().any(is_waited_for) {
                break;
            }
            work.known.clear();
            if is_own && self.now() >= looks_again {
                looks_again = self.now() + self.config.lease / 4;
                let soon = self.now() + self.config.lease / 4;
                if let Err(stop) = self.keep_record(record, &patience.at_most(soon)).await {
                    tracing::debug!(tid = %record.tid, why = %stop.into_error(), "the record is not seen");
                }
            }
            let hindrance = work.hindered.values().next().cloned();
            match self.pause(patience, &mut backoff, hindrance.unwrap_or_else(changing)).await {
                Ok(()) => {}
                Err(Stop::Fail(_)) => break,
                Err(retry) => return Err(retry),
            }
        }
        for key in std::mem::take(&mut work.pending).into_keys() {
            let hindrance = work.hindered.remove(&key).unwrap_or_else(changing);
            work.give_up(&key, hindrance.into_error());
        }
        self.tell_of_damage(&work);
        Ok(work.unsettled)
    }

    /// Reads the members of which nothing is known.
    async fn look_at_members(&self, work: &mut Work<'_>) {
        let tid = work.record.tid;
        let is_unknown = |key: &&Key| !work.known.contains_key(*key);
        let unread: Vec<Key> = work.pending.keys().filter(is_unknown).cloned().collect();
        let looks = self.look_at(&unread, From::Primary).await;
        let mut gone = BTreeMap::new();
        for (key, look) in unread.into_iter().zip(looks) {
            match look {
                Look::Seen(view) => {
                    self.liveness.finds(&key.collection);
                    let member = work.pending.get(&key).map(|index| &work.record.members[*index]);
                    if member.is_some_and(|m| overwritten(tid, m, work.locked.get(&key), &view)) {
                        self.tell_of_overwritten(tid, &key);
                    }
                    work.known.insert(key, view);
                }
                Look::Later(why) => {
                    work.hindered.insert(key, Hindrance::Store(why));
                }
                Look::Missing => {
                    let missing = self.liveness.misses(&key.collection, self.now());
                    if !gone.contains_key(&key.collection) {
                        let long = missing >= NO_NODE_LAGS_FOR;
                        let is_gone = long && self.is_gone(&key.collection).await;
                        gone.insert(key.collection.clone(), is_gone);
                    }
                    if gone.get(&key.collection) == Some(&true) {
                        work.pending.remove(&key);
                        self.tell_of_gone(tid, &key);
                    } else if missing >= self.config.lease {
                        work.give_up(&key, missing_collection(&key));
                    } else {
                        // One answer may be that of a node that lags.
                        let why = format!("no node knows the collection {:?} yet", key.collection);
                        work.hindered.insert(key, Hindrance::Store(why));
                    }
                }
                Look::Broken(error) => work.give_up(&key, error),
            }
        }
    }

    /// What remains to be done to each member, by what stands there.
    fn next_steps(&self, work: &mut Work<'_>) -> Round {
        let tid = work.record.tid;
        let mut round = Round::default();
        for (key, index) in work.pending.clone() {
            let Some(view) = work.known.get(&key) else { continue };
            let step = applying(tid, work.commit, &work.record.members[index], view);
            if matches!(step, Applying::Overtaken(_)) {
                round.overtaken.insert(key.clone());
            }
            let op = self.step_write(step, view, |before| {
                let image = work.record.images[index].clone().unwrap_or_default();
                self.committed(before, work.commit, &image)
            });
            match (op, step) {
                (_, Applying::Touch(_)) if !Guard::TouchApplied.stands() => {
                    work.pending.remove(&key);
                }
                (Some(op), _) => round.writes.push(Write::new(key, op)),
                (None, Applying::ProveAbsence) => round.absences.push(key),
                (None, Applying::Held(_)) => round.held.push(Lock { view: view.clone(), key }),
                (None, Applying::Damaged) => {
                    work.never(&key, "another client wrote the document while it was locked");
                }
                (None, _) => {
                    work.pending.remove(&key);
                }
            }
        }
        round
    }

    /// Sends the writes of a round. Returns whether others changed one of the documents.
    async fn carry_out(&self, work: &mut Work<'_>, round: &Round) -> bool {
        let mut conflicts = false;
        if round.writes.is_empty() {
            return conflicts;
        }
        for (write, outcome) in round.writes.iter().zip(self.write_all(&round.writes).await) {
            let key = &write.key;
            match outcome {
                Outcome::Applied(_) => {
                    work.pending.remove(key);
                    if round.overtaken.contains(key) {
                        self.tell_of_overtaken(work.record.tid, key);
                    }
                }
                Outcome::Conflict | Outcome::Unknown(_) if !Guard::ApplyAcknowledged.stands() => {
                    work.pending.remove(key);
                }
                Outcome::Conflict => conflicts = true,
                Outcome::Rejected(why) | Outcome::RejectedInDoubt(why) | Outcome::Unknown(why) => {
                    work.hindered.insert(key.clone(), Hindrance::Store(why));
                }
                // The next look tells whether the collection is gone.
                Outcome::MissingCollection => conflicts = true,
                refused => {
                    let error = Error::from_refused(&refused, key, "apply a committed write");
                    work.never(key, &error.to_string());
                }
            }
        }
        conflicts
    }

    /// Other transactions hold members that seem applied: they are decided first.
    async fn step_aside(
        &self,
        work: &mut Work<'_>,
        requester: Requester,
        held: Vec<Lock>,
        patience: &Patience,
    ) -> Result<(), Stop> {
        for locks in by_holder(held).into_values() {
            let met = match self.meet_all(requester, locks.clone(), patience).await {
                Ok(met) => met,
                Err(Stop::Fail(error)) => {
                    // The rest of them has its turn in the next round.
                    if let Some(lock) = locks.first() {
                        work.give_up(&lock.key, error);
                    }
                    continue;
                }
                Err(retry) => return Err(retry),
            };
            let is = |lock: &&Lock, what| met.get(&lock.key) == Some(&what);
            work.wait_for(locks.iter().filter(|lock| is(lock, Met::Busy)));
            let void: Vec<Lock> =
                locks.iter().filter(|lock| is(lock, Met::Void)).cloned().collect();
            for (key, unlocked) in self.unlock_all(&void).await {
                match (unlocked, work.known.get(&key)) {
                    // The acknowledged deletion of a void placeholder proves the absence.
                    (Ok(true), Some(View::Present { stored, .. })) if stored.absent => {
                        work.pending.remove(&key);
                    }
                    (Ok(_), _) => {}
                    (Err(error), _) => work.give_up(&key, error),
                }
            }
        }
        Ok(())
    }

    /// Whether a collection that was missing at every look for so long is gone. A node that lags behind says of a new
    /// collection that it is missing; this one is older than the commit, and no node of a cluster lags for so long.
    async fn is_gone(&self, collection: &str) -> bool {
        let spec = CollectionSpec {
            name: collection.to_owned(),
            role: Role::Data { owner: None },
            create: false,
            mappings: None,
        };
        let opened = self.store.open_collection(&spec).await;
        opened.is_err_and(|error| error.kind == StoreErrorKind::NotFound)
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

    /// Takes void locks off, where they still stand as seen, in one request. Says of each whether that was acknowledged.
    pub(crate) async fn unlock_all(&self, locks: &[Lock]) -> BTreeMap<Key, Result<bool, Error>> {
        self.unlock_up_to(locks, UNLOCK_TRIES).await
    }

    async fn unlock_up_to(&self, locks: &[Lock], tries: u32) -> BTreeMap<Key, Result<bool, Error>> {
        let mut unlocked = BTreeMap::new();
        let mut writes = Vec::new();
        for Lock { key, view } in locks {
            let Some(holder) = view.holder() else { continue };
            let step = voiding(view, holder);
            if step == Applying::Damaged {
                let message = "another client wrote content into the placeholder of a transaction";
                let error = Error::damaged(message).at(key).in_transaction(holder);
                unlocked.insert(key.clone(), Err(error));
            } else if let Some(op) = self.step_write(step, view, Stored::clone) {
                unlocked.insert(key.clone(), Ok(false));
                writes.push((holder, Write::new(key.clone(), op)));
            }
        }
        if writes.is_empty() {
            return unlocked;
        }
        let (holders, writes): (Vec<Tid>, Vec<Write>) = writes.into_iter().unzip();
        let outcomes = self.write_all(&writes).await;
        let mut moved = Vec::new();
        for ((tid, Write { key, .. }), outcome) in holders.into_iter().zip(writes).zip(outcomes) {
            match outcome {
                Outcome::Applied(_) => {
                    self.tell(&Event::Unlocked { tid, document: key.clone() });
                    unlocked.insert(key, Ok(true));
                }
                Outcome::Conflict => moved.push(key),
                _ => {}
            }
        }
        if tries > 1 && !moved.is_empty() {
            let again = self.still_locked(locks, moved).await;
            unlocked.extend(Box::pin(self.unlock_up_to(&again, tries - 1)).await);
        }
        unlocked
    }

    /// Those of the locks that stand as they stood, over the same content, but were moved by a touch of somebody else.
    /// A placeholder counts at its version only.
    async fn still_locked(&self, locks: &[Lock], moved: Vec<Key>) -> Vec<Lock> {
        let looks = self.look_at(&moved, From::Primary).await;
        let again = moved.into_iter().zip(looks).filter_map(|(key, look)| {
            let Look::Seen(view @ View::Present { .. }) = look else { return None };
            let before = locks.iter().find(|lock| lock.key == key)?;
            let same = match (&before.view, &view) {
                (View::Present { stored: a, .. }, View::Present { stored: b, .. }) => {
                    a == b && !a.absent
                }
                _ => false,
            };
            same.then_some(Lock { key, view })
        });
        again.collect()
    }

    /// Takes the void lock of a transaction off, if it still stands as seen. Returns whether that was acknowledged.
    pub(crate) async fn unlock(&self, key: &Key, view: &View, holder: Tid) -> Result<bool, Error> {
        if view.holder() != Some(holder) {
            return Ok(false);
        }
        let lock = Lock { key: key.clone(), view: view.clone() };
        self.unlock_all(&[lock]).await.remove(key).unwrap_or(Ok(false))
    }

    /// What a person must look at.
    fn tell_of_damage(&self, work: &Work<'_>) {
        let tid = work.record.tid;
        for (document, error) in &work.unsettled {
            if matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Misconfigured) {
                tracing::error!(%tid, %document, %error, "committed but not applied");
                let what = work.damages.get(document).cloned();
                let what = what.unwrap_or_else(|| error.to_string());
                self.tell(&Event::Damaged { tid, document: document.clone(), what });
            }
        }
    }

    /// A collection was dropped with a committed write that was not applied to it.
    fn tell_of_gone(&self, tid: Tid, key: &Key) {
        tracing::error!(%tid, document = %key, "a committed write went with its collection");
        let what = "its collection is gone, and what was committed to it with it";
        self.tell(&Event::Damaged { tid, document: key.clone(), what: what.to_owned() });
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
}

fn changing() -> Hindrance {
    Hindrance::Store("its documents are being changed".to_owned())
}

/// Whether a plain client changed the content under the member's own lock since it was locked.
fn overwritten(tid: Tid, member: &Member, locked: Option<&View>, now: &View) -> bool {
    let (Some(View::Present { stored: before, .. }), View::Present { stored, .. }) = (locked, now)
    else {
        return false;
    };
    is_locked_by(member, tid, now) && stored.image != before.image
}
