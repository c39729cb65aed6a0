//! Parallel commit: the staged record, the locks and the dry runs go out together.

use txn_protocol::rule::Rule;
use txn_protocol::rules::staged::{Answer, Owning, owning};

use crate::scenario::{Scenario, Script};
use crate::state::{Body, Doc, Fault, Mark, Message, Phase, Rec, Told, Who, World};
use crate::turn::{Object, Turn};

/// The bits of `Txn::done` while the bulk is under way: each document, the record, the dry runs.
const RECORD: u8 = 1 << 6;
const DRY_RUNS: u8 = 1 << 7;

impl Turn<'_> {
    /// The bulk, and the mark behind it.
    pub(crate) fn parallel(&mut self, t: usize, me: Who, script: &Script) {
        if self.world.txns[t].phase == Phase::Marking {
            self.mark(t, me);
            return;
        }
        self.bulk(t, me, script);
    }

    fn bulk(&mut self, t: usize, me: Who, script: &Script) {
        let txn = self.world.txns[t];
        for d in script.written().filter(|d| txn.done & (1 << *d) == 0) {
            let read = txn.seen[d];
            let doc = Doc {
                version: 1,
                lock: me,
                absent: read.absent,
                writer: read.writer,
                stamp: read.stamp,
                ..Doc::default()
            };
            let message = Message { expected: read.version, body: Body::Doc(d, doc) };
            self.send("locks", message, move |w, answer| {
                let txn = &mut w.txns[t];
                txn.done |= 1 << d;
                match answer {
                    Some(version) => txn.held[d] = version,
                    None => txn.unsure |= 1 << d,
                }
            });
        }
        if txn.done & RECORD == 0
            && let Some(staged) = self.record(t, script, Mark::Staged)
        {
            let message = Message { expected: 0, body: Body::Rec(me, staged) };
            self.send("stages", message, move |w, answer| {
                let txn = &mut w.txns[t];
                txn.done |= RECORD;
                if answer.is_none() {
                    txn.unsure |= RECORD;
                }
            });
        }
        if txn.done & DRY_RUNS == 0 {
            self.go("dry runs fit", Object::Nothing, |w| w.txns[t].done |= DRY_RUNS);
            if script.may_misfit {
                self.go("a dry run fails", Object::Nothing, |w| {
                    w.txns[t].done |= DRY_RUNS;
                    w.txns[t].misfit = true;
                });
            }
        }
    }

    /// Before any apply the staged record is marked as committed.
    fn mark(&mut self, t: usize, me: Who) {
        let rec = *self.world.rec(me);
        let marked = move |w: &mut World, answer: Option<u8>| {
            if answer.is_some() {
                (w.txns[t].phase, w.txns[t].done) = (Phase::Applying, 0);
            }
        };
        match rec.mark {
            Mark::Staged => {
                self.put_rec(
                    "marks as committed",
                    me,
                    Rec { mark: Mark::Committed, ..rec },
                    marked,
                );
            }
            Mark::Committed | Mark::Finished => {
                self.put_rec("touches its committed", me, rec, marked);
            }
            Mark::Missing | Mark::Pending | Mark::Aborted => {
                self.go("is undone", Object::Rec(me), |w| w.fault = Some(Fault::Undone));
            }
        }
    }
}

/// A bulk is answered as a whole: what is awaited is under way, and may land in any order. Then the owner decides.
pub(crate) fn all_answered(scenario: &Scenario, w: &mut World, t: usize) -> bool {
    let (script, txn) = (&scenario.scripts[t], w.txns[t]);
    let answer = |bit: u8, ok: bool| match (txn.done & bit, ok) {
        (0, _) => Answer::Awaited,
        (_, true) => Answer::Acknowledged,
        (_, false) => Answer::Failed,
    };
    let fits = !txn.misfit || scenario.lacks(Rule::DryRunsFit);
    let mut answers: Vec<Answer> =
        script.written().map(|d| answer(1 << d, txn.held[d] > 0)).collect();
    answers.extend([answer(RECORD, txn.unsure & RECORD == 0), answer(DRY_RUNS, fits)]);
    if answers.contains(&Answer::Awaited) {
        return false;
    }
    let told = &mut w.txns[t].told;
    match owning(answers) {
        Owning::Await => return false,
        Owning::Acknowledge => {
            *told = Told::Committed;
            w.txns[t].phase = Phase::Marking;
            if txn.misfit {
                w.fault = Some(Fault::Misfit);
            }
        }
        Owning::DecideRecord => {
            if scenario.lacks(Rule::DecideBeforeTelling) {
                *told = Told::Failed;
            }
            w.txns[t].phase = Phase::Aborting;
        }
    }
    w.txns[t].done = 0;
    true
}
