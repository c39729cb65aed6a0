//! The resolution of foreign locks: decide the holder, apply or void.
//!
//! Owners, readers and janitors take the same steps.

use txn_protocol::machines::record::{Decide, Decision, Finish};
use txn_protocol::machines::roll_forward::{RollForward, roll_forward};
use txn_protocol::machines::settle::{Machine, Settle};
use txn_protocol::record::{Op, Participant};
use txn_protocol::rule::Rule;
use txn_protocol::rules::apply::{Applying, Committed, applying, is_held_by, unlocking};
use txn_protocol::rules::conflict::{Conflict, Requester, conflict};

use crate::scenario::Death;
use crate::state::{
    Body, DOCS, Doc, Fault, ForeignApply, Mark, Message, Own, Phase, Rec, Told, Who, World,
    attempt_of, txn_of, who,
};
use crate::translate::{self, commit_version, holder_state, standing, tid, view};
use crate::turn::{Actor, Object, Turn, foreign_of, learn};

impl Turn<'_> {
    /// Whether a holder may be taken for dead.
    fn dead(&self, holder: Who) -> bool {
        let owner = &self.world.txns[txn_of(holder)];
        let over = matches!(owner.phase, Phase::Done | Phase::Dead);
        self.scenario.death == Death::Anytime || over || owner.attempt != attempt_of(holder)
    }

    /// Resolves a lock, or waits if the rules say so.
    pub(crate) fn meet(&mut self, requester: Requester, holder: Who) {
        let state = holder_state(self.world.rec(holder).mark);
        let verdict =
            conflict(&self.scenario.rules, requester, tid(holder), state, self.dead(holder));
        if verdict == Conflict::Resolve {
            self.decide(holder);
        }
    }

    /// Decides a holder.
    fn decide(&mut self, holder: Who) {
        let standing = standing(self.world.rec(holder));
        let known_aborted = self.knows(holder);
        let decide = Decide { rules: &self.scenario.rules, known_aborted, dead_at: None };
        self.carry_out(holder, decide.next(&standing));
    }

    /// Carries out a decision, and learns the result once it is acknowledged.
    pub(crate) fn carry_out(&mut self, holder: Who, settle: Settle<Decision>) {
        let (actor, rec) = (self.actor, *self.world.rec(holder));
        let proven = move |w: &mut World, decision: Decision| match decision {
            Decision::Aborted => {
                learn(w, actor, holder);
                learned_own(w, actor, holder);
            }
            Decision::Committed => learned_committed(w, actor, holder),
        };
        let acknowledged = move |w: &mut World, answer: Option<u8>, decision: Decision| {
            if answer.is_some() {
                proven(w, decision);
            }
        };
        match settle {
            Settle::Known(decision) => {
                self.go("knows what became of", Object::Rec(holder), |w| proven(w, decision));
            }
            Settle::Write(_, decision) => {
                let aborted = Rec { mark: Mark::Aborted, ..Rec::default() };
                self.put_rec("aborts", holder, aborted, |w, a| acknowledged(w, a, decision));
            }
            Settle::Touch(_, decision) => {
                self.put_rec("touches the decided", holder, rec, |w, a| {
                    acknowledged(w, a, decision);
                });
            }
            // Only a partition that is gone has no record to decide, and this model has none.
            Settle::Stuck => {}
        }
    }

    /// Continues the resolution of a foreign transaction.
    pub(crate) fn go_on(&mut self, requester: Requester) {
        let foreign = self.foreign();
        self.apply(foreign.who, foreign.done, requester);
    }

    /// Applies the remaining participants of a committed transaction, then marks it finished.
    pub(crate) fn apply(&mut self, holder: Who, done: u8, requester: Requester) {
        let (actor, rec) = (self.actor, *self.world.rec(holder));
        if !matches!(rec.mark, Mark::Committed | Mark::Finished) {
            self.go("finds no committed record of", Object::Rec(holder), |w| {
                set_done(w, actor, None);
            });
            return;
        }
        let left: Vec<(usize, Applying)> = (0..DOCS)
            .filter(|d| done & (1 << *d) == 0)
            .filter_map(|d| Some((d, self.step(holder, &rec, d, &self.participant(&rec, d)?))))
            .collect();
        let next = roll_forward(left.iter().map(|(_, step)| *step));
        for (d, step) in &left {
            if !(next == RollForward::Write && matches!(step, Applying::Held(_))) {
                self.apply_member(&rec, holder, *d, *step, done, requester);
            }
        }
        // The owner knows its own locks only.
        let applies_foreign = self.foreign().who == holder && !self.lacks(Rule::UnnamedLockVoid);
        let orphans = if applies_foreign { self.orphans(holder, &rec) } else { Vec::new() };
        for d in &orphans {
            self.unlock(*d, holder, None);
        }
        if next != RollForward::Finish || !orphans.is_empty() {
            return;
        }
        if let Settle::Known(()) = Finish.next(&standing(&rec)) {
            self.go("is done with", Object::Rec(holder), |w| set_done(w, actor, None));
            return;
        }
        let finished = Rec { mark: Mark::Finished, ..rec };
        self.put_rec("marks as finished", holder, finished, move |w, answer| {
            if answer.is_some() {
                set_done(w, actor, None);
            }
        });
    }

    /// The documents with a lock that the holder's record does not name.
    fn orphans(&self, holder: Who, rec: &Rec) -> Vec<usize> {
        let is_stray = |d: &usize| {
            let doc = self.world.docs[*d].now;
            let is_named = |participant: Participant| {
                let (rules, now) = (&self.scenario.rules, view(&doc));
                let is_open = rec.mark == Mark::Committed;
                is_held_by(rules, &participant, tid(holder), is_open, &now)
            };
            doc.lock == holder && !self.participant(rec, *d).is_some_and(is_named)
        };
        (0..DOCS).filter(is_stray).collect()
    }

    pub(crate) fn participant(&self, rec: &Rec, d: usize) -> Option<Participant> {
        translate::participant(rec, d)
    }

    /// The next step of one participant.
    fn step(&self, holder: Who, rec: &Rec, d: usize, participant: &Participant) -> Applying {
        let doc = self.world.docs[d].now;
        // A deletion is on record before the document is removed.
        let was_deleted = doc.writer != self.world.txns[txn_of(holder)].seen[d].writer;
        let searches = !(self.lacks(Rule::RelockUnapplied) && self.owned(holder).is_some());
        let applied = rec.mark == Mark::Finished || searches && was_deleted;
        let commit = commit_version(rec.stamp);
        let elsewhere = doc.era != rec.eras[d];
        let committed = Committed { tid: tid(holder), commit, applied, elsewhere };
        let relocked = self.owned(holder).map_or(0, |own| own.relocked[d]);
        let relocked = (relocked > 0).then(|| Participant {
            op: Op::Insert,
            placeholder: Some(translate::version_in(doc.era, relocked)),
            before: None,
            ..participant.clone()
        });
        let participant = relocked.as_ref().unwrap_or(participant);
        applying(&self.scenario.rules, committed, participant, None, &view(&doc))
    }

    /// The knowledge of an owner about its attempt.
    ///
    /// The actor must be the owner of the attempt.
    fn owned(&self, holder: Who) -> Option<Own> {
        let Actor::Owner(t) = self.actor else { return None };
        let txn = &self.world.txns[t];
        (who(t, txn.attempt) == holder && txn.phase == Phase::Applying).then_some(txn.own)
    }

    /// Handles a document that does not tell whether the commit was applied.
    fn settle_unclear(&mut self, holder: Who, rec: &Rec, d: usize) {
        let doc = self.world.docs[d].now;
        let Some(own) = self.owned(holder) else {
            self.report(d);
            return;
        };
        let t = txn_of(holder);
        let relock = move |w: &mut World| match doc.version {
            0 => w.txns[t].own.missing |= 1 << d,
            version => w.txns[t].own.relocked[d] = version,
        };
        if own.missing & (1 << d) != 0 && doc.version == 0 {
            let placeholder =
                Doc { lock: holder, absent: true, writer: doc.writer, ..Doc::default() };
            self.put_doc("locks again", d, placeholder.at_some(), move |w, answer| {
                w.txns[t].own.relocked[d] = answer.unwrap_or(w.txns[t].own.relocked[d]);
            });
        } else if self.lacks(Rule::RelockUnapplied) {
            self.go("takes for its own", Object::Doc(d), relock);
        } else if own.record == 0 {
            self.report(d);
        } else {
            let message = Message { expected: own.record, body: Body::Rec(holder, *rec) };
            self.send("touches its record", message, move |w, answer| {
                w.txns[t].own.record = answer.unwrap_or_default();
                if answer.is_some() {
                    relock(w);
                }
            });
        }
    }

    fn report(&mut self, d: usize) {
        self.go("reports", Object::Doc(d), |w| w.reported |= 1 << d);
    }

    fn apply_member(
        &mut self,
        rec: &Rec,
        holder: Who,
        d: usize,
        step: Applying,
        done: u8,
        requester: Requester,
    ) {
        let actor = self.actor;
        let doc = self.world.docs[d].now;
        let writer = u8::try_from(txn_of(holder) + 1).unwrap_or_default();
        if self.lacks(Rule::TouchKeepsLock)
            && let Applying::Touch(_) = step
            && doc.lock > 0
        {
            self.aside(d, doc.lock, Requester::NonPreempting, None);
            return;
        }
        let all = self.lacks(Rule::ApplyAcknowledged);
        let dealt = move |w: &mut World, answer: Option<u8>| {
            if answer.is_some() || all {
                set_done(w, actor, Some(done | 1 << d));
            }
        };
        let gone = Doc { writer: doc.writer, ..Doc::default() };
        match step {
            Applying::Write(_) => {
                let content = Doc { writer, stamp: rec.stamp, ..Doc::default() };
                self.put_doc("applies", d, content.at_some(), dealt);
            }
            Applying::Delete(_) => {
                self.put_doc("deletes", d, Doc { writer, ..Doc::default() }, dealt);
            }
            Applying::Unlock(_) => self.put_doc("unlocks", d, Doc { lock: 0, ..doc }, dealt),
            Applying::RemovePlaceholder(_) => {
                self.put_doc("removes the placeholder", d, gone, dealt);
            }
            Applying::Touch(_) => self.put_doc("touches", d, doc, dealt),
            Applying::Overtaken(_) => self.go("takes for overtaken", Object::Doc(d), |w| {
                w.fault = Some(Fault::Overtaken);
            }),
            // A placeholder of an aborted tid is created and deleted, as one step.
            Applying::ProveAbsence => {
                self.put_doc("proves the absence of", d, gone, dealt);
            }
            Applying::Held(other) => {
                self.aside(d, translate::who(other), requester, Some(done | 1 << d));
            }
            Applying::Unclear(_) => self.settle_unclear(holder, rec, d),
            // After ten minutes in this state.
            Applying::Elsewhere => self.go("reports as lost", Object::Doc(d), |w| {
                w.reported |= 1 << d;
                dealt(w, Some(0));
            }),
            // Only an owner with a locked document at hand receives this answer.
            Applying::PerhapsOvertaken(_) => {}
            Applying::Done => self.go("has nothing to do at", Object::Doc(d), |w| {
                dealt(w, Some(0));
            }),
            Applying::Damaged => self.go("takes for damaged", Object::Doc(d), |w| {
                w.fault = Some(Fault::Damaged);
            }),
        }
    }

    /// Resolves a foreign holder of a document.
    ///
    /// A void lock is removed, and any other holder is decided. `proven`: the participants that are
    /// settled once a bare placeholder was deleted.
    pub(crate) fn aside(
        &mut self,
        d: usize,
        holder: Who,
        requester: Requester,
        proven: Option<u8>,
    ) {
        if self.knows(holder) {
            self.unlock(d, holder, proven);
        } else {
            self.meet(requester, holder);
        }
    }

    /// Removes the void lock of an aborted attempt.
    pub(crate) fn unlock(&mut self, d: usize, holder: Who, proven: Option<u8>) {
        let actor = self.actor;
        let doc = self.world.docs[d].now;
        match unlocking(&view(&doc), tid(holder)) {
            Applying::RemovePlaceholder(_) => {
                let gone = Doc { writer: doc.writer, ..Doc::default() };
                self.put_doc("removes the void placeholder", d, gone, move |w, answer| {
                    if let (Some(_), Some(proven)) = (answer, proven) {
                        set_done(w, actor, Some(proven));
                    }
                });
            }
            Applying::Unlock(_) => {
                self.put_doc("takes the void lock off", d, Doc { lock: 0, ..doc }, |_, _| {});
            }
            Applying::Damaged => self.go("takes for damaged", Object::Doc(d), |w| {
                w.fault = Some(Fault::Damaged);
            }),
            _ => {}
        }
    }
}

impl Doc {
    /// The document at some version. A write of it is not a deletion, and the store assigns the
    /// version.
    #[must_use]
    pub fn at_some(self) -> Self {
        Self { version: 1, ..self }
    }
}

/// Begins to apply a committed transaction.
///
/// The transaction is the actor's own, or a foreign one.
fn learned_committed(w: &mut World, actor: Actor, holder: Who) {
    if let Actor::Owner(t) = actor
        && who(t, w.txns[t].attempt) == holder
    {
        let txn = &mut w.txns[t];
        (txn.told, txn.phase, txn.done) = (Told::Committed, Phase::Applying, 0);
    } else if let Some(foreign) = foreign_of(w, actor) {
        *foreign = ForeignApply { who: holder, done: 0 };
    }
}

/// Begins the release of an owner with an aborted record.
fn learned_own(w: &mut World, actor: Actor, holder: Who) {
    if let Actor::Owner(t) = actor
        && who(t, w.txns[t].attempt) == holder
    {
        let txn = &mut w.txns[t];
        (txn.phase, txn.done) = (Phase::Releasing, 0);
    }
}

/// Notes the participants that are settled; none: the work is over.
fn set_done(w: &mut World, actor: Actor, done: Option<u8>) {
    if let Actor::Owner(t) = actor {
        let txn = &mut w.txns[t];
        if txn.foreign.who == 0 && matches!(txn.phase, Phase::Applying) {
            match done {
                Some(done) => txn.done = done,
                None => txn.phase = Phase::Done,
            }
            return;
        }
    }
    let Some(foreign) = foreign_of(w, actor) else { return };
    match done {
        Some(done) if foreign.who > 0 => foreign.done = done,
        Some(_) => {}
        None => *foreign = ForeignApply::default(),
    }
}
