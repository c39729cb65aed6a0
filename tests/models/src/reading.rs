//! Reads without locks, and transactions with a single write.

use txn_protocol::document::View;
use txn_protocol::rule::Rule;
use txn_protocol::rules::apply::is_held_by;
use txn_protocol::rules::conflict::Requester;
use txn_protocol::rules::resolve::{Reading, reading, writes};

use crate::scenario::{Kind, Script, Use};
use crate::state::{
    Body, DOCS, Doc, Mark, Message, Phase, Rec, Seen, Told, Who, World, ended, seen, txn_of,
};
use crate::translate::{self, holder_state, stamp, tid};
use crate::turn::{Object, Turn};

impl Turn<'_> {
    /// The next read of a transaction without locks at reads.
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
        let sees_locks = script.kind == Kind::Single && !self.lacks(Rule::SingleSeesLocks);
        if doc.lock > 0 && sees_locks {
            // A write must not be sent on the version of a locked document.
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

    /// Finds the committed content of a locked document, by the holder's record.
    fn resolve(&mut self, t: usize, d: usize, holder: Who) {
        let rec = *self.world.rec(holder);
        let read = self.world.txns[t].seen[d];
        let written = self.is_written(&rec, d, &read);
        let state = holder_state(rec.mark);
        let answer = reading(&self.scenario.rules, state, written);
        self.go("reads the record of", Object::Rec(holder), |w| {
            answer_read(w, t, d, holder, &rec, answer);
        });
    }

    /// Whether the lock that was read belongs to a write.
    ///
    /// The participant of the lock is written.
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

    /// The single write of a transaction of one document. Without an answer the outcome is never
    /// known.
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
                // Only the document could tell whether the write happened.
                None => txn.phase = Phase::Done,
            }
        });
    }

    /// Runs a whole transaction in one step, if that is possible.
    ///
    /// Its documents must be unlocked, and must fit its operations.
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

/// A reader's answer for a locked document.
fn answer_read(w: &mut World, t: usize, d: usize, holder: Who, rec: &Rec, answer: Reading) {
    let txn = &mut w.txns[t];
    txn.unsure &= !(1 << d);
    if answer == Reading::RecordImage {
        let deleted = translate::participant(rec, d)
            .is_some_and(|m| m.op == txn_protocol::record::Op::Delete);
        let writer = u8::try_from(txn_of(holder) + 1).unwrap_or_default();
        let stamp = if deleted { 0 } else { rec.stamp };
        // The content does not belong to this version: only the commit identifies it.
        let era = txn.seen[d].era;
        let read = Seen { read: true, version: 0, absent: deleted, writer, stamp, holder, era };
        txn.seen[d] = read;
    }
}
