//! Reading without locks, and transactions that are one write.

use txn_protocol::document::View;
use txn_protocol::rule::Rule;
use txn_protocol::rules::apply::is_held_by;
use txn_protocol::rules::conflict::Requester;
use txn_protocol::rules::resolve::{Reading, reading, writes};
use txn_protocol::rules::staged::{StagedReading, is_locked, staged_reading};

use crate::scenario::{Kind, Script, Use};
use crate::state::{
    Body, DOCS, Doc, Help, Mark, Message, Phase, Rec, Seen, Stage, Told, Who, World, ended, seen,
    txn_of,
};
use crate::translate::{self, holder_state, stamp, tid, view};
use crate::turn::{Object, Turn};

impl Turn<'_> {
    /// The next read of a transaction that does not lock at its reads.
    pub(crate) fn read(&mut self, t: usize, me: Who, script: &Script) {
        let txn = self.world.txns[t];
        if script.after.is_some_and(|before| self.world.txns[before].told == Told::Nothing) {
            return;
        }
        if let Some(d) = (0..DOCS).find(|d| txn.unsure & (1 << *d) != 0) {
            self.resolve(t, d, txn.seen[d].holder);
            return;
        }
        let Some(d) = script.documents().find(|d| !txn.seen[*d].read) else { return };
        let doc = self.world.docs[d].now;
        let sees_locks = match script.kind {
            Kind::Parallel => true,
            Kind::Single => !self.lacks(Rule::SingleSeesLocks),
            Kind::Explicit | Kind::ReadOnly | Kind::Reader | Kind::Instant => false,
        };
        if doc.lock > 0 && sees_locks {
            // What carries a lock is no version to send a write on.
            self.aside(d, doc.lock, Requester::Locking(tid(me)), None);
            return;
        }
        self.go("reads", Object::Doc(d), |w| {
            if script.documents().all(|d| !w.txns[t].seen[d].read) {
                w.txns[t].after = ended(w);
            }
            let txn = &mut w.txns[t];
            txn.seen[d] = seen(&doc);
            if doc.lock > 0 {
                txn.unsure |= 1 << d;
            }
        });
    }

    /// A locked document: the holder's record says which content is committed.
    fn resolve(&mut self, t: usize, d: usize, holder: Who) {
        let rec = *self.world.rec(holder);
        let read = self.world.txns[t].seen[d];
        let written = self.is_written(&rec, d, &read);
        let state = holder_state(rec.mark);
        let answer = reading(&self.scenario.rules, state, written);
        self.go("reads the record of", Object::Rec(holder), |w| {
            if answer == Reading::Staged {
                let version = rec.version;
                w.txns[t].help = Help { who: holder, stage: Stage::Look, done: 0, version };
            } else {
                answer_read(w, t, d, holder, &rec, answer);
            }
        });
    }

    /// Whether the lock that was read is a participant's that is written.
    fn is_written(&self, rec: &Rec, d: usize, read: &Seen) -> bool {
        let (version, stored) =
            (translate::version_in(read.era, read.version), translate::stored(read));
        self.participant(rec, d).is_some_and(|participant| {
            let (rules, is_open) = (&self.scenario.rules, rec.mark == Mark::Committed);
            let seen = View::Present { version, source: "{}".into(), stored: stored.clone() };
            writes(participant.op)
                && is_held_by(rules, &participant, tid(read.holder), is_open, &seen)
        })
    }

    /// A reader that found a staged record, or an owner that helps.
    pub(crate) fn look_or_go_on(&mut self, t: usize, requester: Requester) {
        let txn = self.world.txns[t];
        let help = txn.help;
        let Some(d) = (0..DOCS).find(|d| txn.unsure & (1 << *d) != 0) else {
            self.go_on(requester);
            return;
        };
        let rec = *self.world.rec(help.who);
        match help.stage {
            Stage::Look => self.look(t, d, help, &rec),
            Stage::Again => {
                let written = self.is_written(&rec, d, &txn.seen[d]);
                let all_locked = help.done != 0;
                match staged_reading(
                    &self.scenario.rules,
                    all_locked,
                    holder_state(rec.mark),
                    written,
                ) {
                    StagedReading::Answer(answer) => {
                        self.go("reads again the record of", Object::Rec(help.who), |w| {
                            answer_read(w, t, d, help.who, &rec, answer);
                        });
                    }
                    // The owner's mark does not come: recover, then read the record again.
                    StagedReading::AwaitMark => self.meet(requester, help.who),
                }
            }
            _ => self.go_on(requester),
        }
    }

    /// Looks at the participants of a staged transaction, one after the other.
    fn look(&mut self, t: usize, d: usize, help: Help, rec: &Rec) {
        let participants = || (0..DOCS).filter_map(|k| Some((k, translate::participant(rec, k)?)));
        let next = participants().find(|(k, _)| help.done & (1 << *k) == 0);
        let Some((k, participant)) = next else {
            let all_locked = participants().next().is_some();
            self.go("sees every lock of", Object::Rec(help.who), |w| {
                let help = &mut w.txns[t].help;
                (help.stage, help.done) = (Stage::Again, u8::from(all_locked));
            });
            return;
        };
        let now = self.world.docs[k].now;
        let (rules, holder) = (&self.scenario.rules, tid(help.who));
        // It may have been locked in the collection before.
        let is_elsewhere = now.era != rec.eras[k] && !self.lacks(Rule::SameCollection);
        if is_elsewhere || is_locked(rules, holder, &participant, &view(&now)) {
            self.go("sees locked", Object::Doc(k), |w| w.txns[t].help.done |= 1 << k);
        } else if self.lacks(Rule::ReadStagedAgain) {
            self.go("sees unlocked", Object::Doc(k), |w| {
                answer_read(w, t, d, help.who, rec, Reading::CommittedImage);
            });
        } else {
            self.go("sees unlocked", Object::Doc(k), |w| {
                let help = &mut w.txns[t].help;
                (help.stage, help.done) = (Stage::Again, 0);
            });
        }
    }

    /// The one write of a one-document transaction. Without an answer it is never told.
    pub(crate) fn write_single(&mut self, t: usize, script: &Script) {
        let Some(d) = script.documents().next() else { return };
        let read = self.world.txns[t].seen[d];
        let writer = u8::try_from(t + 1).unwrap_or_default();
        let content = Doc { writer, stamp: stamp(read.stamp, t), ..Doc::default() };
        let body = Body::Doc(d, content.at_some());
        self.send("writes", Message { expected: read.version, body }, move |w, answer| {
            let txn = &mut w.txns[t];
            match answer {
                Some(_) => (txn.phase, txn.told) = (Phase::Done, Told::Committed),
                // Whether it happened only the document could tell.
                None => txn.phase = Phase::Done,
            }
        });
    }

    /// A whole transaction in one step, where nobody holds its documents and it can do what it wants.
    pub(crate) fn at_once(&mut self, t: usize, script: &Script) {
        let docs = self.world.docs.map(|slot| slot.now);
        let can = script
            .documents()
            .all(|d| docs[d].lock == 0 && docs[d].exists() != (script.uses[d] == Use::Insert));
        if script.after.is_some_and(|other| self.world.txns[other].told == Told::Nothing) || !can {
            return;
        }
        self.go("reads and writes at once", Object::Nothing, |w| {
            let after = ended(w);
            let latest = script.documents().map(|d| docs[d].stamp).max().unwrap_or_default();
            for d in script.documents() {
                w.txns[t].seen[d] = seen(&docs[d]);
                let writer = u8::try_from(t + 1).unwrap_or_default();
                let gone = Doc { writer, ..Doc::default() };
                let content = Doc { stamp: stamp(latest, t), ..gone }.at_some();
                match script.uses[d] {
                    Use::Read | Use::No => {}
                    Use::Put | Use::Insert => drop(w.carry_out(Body::Doc(d, content), false)),
                    Use::Delete => drop(w.carry_out(Body::Doc(d, gone), false)),
                }
            }
            let txn = &mut w.txns[t];
            (txn.after, txn.told, txn.phase) = (after, Told::Committed, Phase::Done);
        });
    }
}

/// What a reader answers for a locked document.
fn answer_read(w: &mut World, t: usize, d: usize, holder: Who, rec: &Rec, answer: Reading) {
    let txn = &mut w.txns[t];
    txn.unsure &= !(1 << d);
    txn.help = Help::default();
    if answer == Reading::RecordImage {
        let deleted = translate::participant(rec, d)
            .is_some_and(|m| m.op == txn_protocol::record::Op::Delete);
        let writer = u8::try_from(txn_of(holder) + 1).unwrap_or_default();
        let stamp = if deleted { 0 } else { rec.stamp };
        // The content is not that of this version: only the commit identifies it.
        let era = txn.seen[d].era;
        let read = Seen { read: true, version: 0, absent: deleted, writer, stamp, holder, era };
        txn.seen[d] = read;
    }
}
