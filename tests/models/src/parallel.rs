//! Parallel commit: the staged record, the locks and the dry runs go out together.

use crate::scenario::Script;
use crate::staging::{DRY_RUNS, RECORD};
use crate::state::{Body, Doc, Fault, Mark, Message, Phase, Rec, Who, World};
use crate::turn::{Object, Turn};

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
