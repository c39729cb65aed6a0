//! The owner of a transaction: reads, locks, validates, commits, applies, releases.
//!
//! The decisions and their order are the engine's own, from `txn-protocol`.

use txn_protocol::machines::attempt::{operation, validated_first};
use txn_protocol::machines::record::{Commit, Decide, Decision};
use txn_protocol::machines::settle::{Machine, Settle};
use txn_protocol::rule::Rule;
use txn_protocol::rules::conflict::Requester;
use txn_protocol::rules::lock::{Locking, locking};
use txn_protocol::rules::validate::{Validity, validity};

use crate::scenario::{Kind, Script};
use crate::state::{DOCS, Doc, Fault, Mark, Phase, Rec, Told, Txn, Who, World, ended, seen, who};
use crate::translate::{self, change, deed, observed, stamp, standing, tid, view};
use crate::turn::{Actor, Object, Turn};

impl Turn<'_> {
    /// All steps that the owner of a transaction may take now.
    pub(crate) fn owner(&mut self, t: usize) {
        let (script, txn) = (self.scenario.scripts[t], self.world.txns[t]);
        if matches!(txn.phase, Phase::Done | Phase::Dead) {
            return;
        }
        let me = who(t, txn.attempt);
        let began = txn.phase != Phase::Reading || txn.held.iter().any(|v| *v > 0);
        if self.world.budget.deaths > 0 && began && script.kind == Kind::Explicit {
            self.go("dies", Object::Nothing, |w| {
                w.budget.deaths -= 1;
                w.txns[t].phase = Phase::Dead;
            });
        }
        let holds = txn.held.iter().any(|v| *v > 0) || script.writes();
        let requester = if holds { Requester::Locking(tid(me)) } else { Requester::NonPreempting };
        if txn.foreign.who > 0 {
            self.go_on(requester);
            return;
        }
        self.heartbeat(me, &script, &txn);
        match txn.phase {
            Phase::Reading if script.kind == Kind::Instant => self.at_once(t, &script),
            Phase::Reading if script.is_pessimistic(&txn) => self.lock_next(t, me, &script),
            Phase::Reading => self.read(t, me, &script),
            Phase::Locking => self.lock_all(t, me, &script),
            Phase::Validating => self.validate(t, me, &script, requester),
            Phase::Verifying => self.verify_locks(t),
            Phase::Committing if script.kind == Kind::Single => self.write_single(t, &script),
            Phase::Committing => self.commit(t, me, &script),
            Phase::Applying => self.apply(me, txn.done, Requester::NonPreempting),
            Phase::Aborting => {
                let standing = standing(self.world.rec(me));
                let decide =
                    Decide { rules: &self.scenario.rules, known_aborted: false, dead_at: None };
                self.carry_out(me, decide.next(&standing));
            }
            Phase::Releasing => self.release(t, me),
            Phase::Done | Phase::Dead => {}
        }
    }

    fn heartbeat(&mut self, me: Who, script: &Script, txn: &Txn) {
        let may = matches!(txn.phase, Phase::Locking | Phase::Validating);
        if script.heartbeat && may && self.world.rec(me).mark == Mark::Missing {
            let pending = Rec { mark: Mark::Pending, ..Rec::default() };
            self.put_rec("writes a heartbeat to", me, pending, |_, _| {});
        }
    }

    /// Locks the next document at its read.
    fn lock_next(&mut self, t: usize, me: Who, script: &Script) {
        if script.gives_back {
            self.give_back(t);
        }
        if let Some(d) = script.documents().find(|d| self.world.txns[t].held[*d] == 0) {
            self.lock(t, me, d, script);
        }
    }

    /// Releases a lock early, to take it again later.
    ///
    /// No computation has used the content before.
    fn give_back(&mut self, t: usize) {
        let txn = self.world.txns[t];
        for d in (0..DOCS).filter(|d| txn.held[*d] > 0 && txn.unsure & (1 << *d) == 0) {
            let doc = self.world.docs[d].now;
            if doc.version != txn.held[d] || doc.absent {
                continue;
            }
            self.put_doc("gives back", d, Doc { lock: 0, ..doc }, move |w, answer| {
                let txn = &mut w.txns[t];
                (txn.held[d], txn.seen[d]) = (0, Default::default());
                if answer.is_none() {
                    txn.unsure |= 1 << d;
                }
            });
        }
    }

    fn lock_all(&mut self, t: usize, me: Who, script: &Script) {
        for d in self.scenario.wanted_locks(t, &self.world.txns[t]) {
            self.lock(t, me, d, script);
        }
    }

    /// A step towards one lock.
    fn lock(&mut self, t: usize, me: Who, d: usize, script: &Script) {
        let txn = self.world.txns[t];
        let doc = self.world.docs[d].now;
        let mut bare = doc;
        if doc.lock > 0 && doc.lock != me && self.knows(doc.lock) {
            bare.lock = 0;
        }
        if let Some((predecessor, step)) = self.handoff(script, d) {
            self.lock_by_handoff(t, me, d, (predecessor, step), script);
            return;
        }
        let read = txn.seen[d].read.then(|| observed(&txn.seen[d]));
        let after = ended(self.world);
        let taken = move |w: &mut World, answer: Option<u8>| {
            let txn = &mut w.txns[t];
            match answer {
                Some(version) => {
                    if txn.seen.iter().all(|seen| !seen.read) {
                        txn.after = after;
                    }
                    txn.held[d] = version;
                    txn.unsure &= !(1 << d);
                    txn.seen[d].era = doc.era;
                    if txn.seen[d].absent {
                        txn.seen[d].writer = bare.writer;
                    }
                    if !txn.seen[d].read {
                        txn.seen[d] = seen(&bare);
                        txn.seen[d].holder = 0;
                    }
                }
                None => txn.unsure |= 1 << d,
            }
        };
        match locking(&self.scenario.rules, tid(me), read.as_ref(), &view(&bare)) {
            Locking::CreatePlaceholder => {
                let placeholder =
                    Doc { lock: me, absent: true, writer: doc.writer, ..Doc::default() };
                self.put_doc("creates a placeholder at", d, placeholder.at_some(), taken);
                self.perhaps_certain(t, d);
            }
            Locking::LockAt(_) => {
                self.put_doc("locks", d, Doc { lock: me, ..bare }, taken);
                self.perhaps_certain(t, d);
            }
            Locking::Settle(_) if self.lacks(Rule::LockAcknowledged) => {
                self.go("sees its lock on", Object::Doc(d), |w| taken(w, Some(doc.version)));
            }
            Locking::Settle(_) => self.put_doc("touches its lock on", d, doc, taken),
            Locking::Held(holder) => {
                self.meet(Requester::Locking(tid(me)), translate::who(holder));
            }
            Locking::Changed => self.give_up(t, d, script),
        }
    }

    /// Without the rule a lock that was refused is not in doubt.
    fn perhaps_certain(&mut self, t: usize, d: usize) {
        if self.lacks(Rule::RefusalInDoubt) {
            self.believes_refusals(t, |w| w.txns[t].unsure &= !(1 << d));
        }
    }

    /// Ends the attempt, because a read is no longer current.
    pub(crate) fn give_up(&mut self, t: usize, d: usize, script: &Script) {
        let recorded = script.heartbeat;
        self.go("finds changed", Object::Doc(d), |w| give_up(&mut w.txns[t], recorded));
    }

    fn validate(&mut self, t: usize, me: Who, script: &Script, requester: Requester) {
        let txn = self.world.txns[t];
        let open = self.scenario.unvalidated(t, &txn);
        let all_absent = open.iter().all(|d| txn.seen[*d].absent);
        let first =
            |d: &usize| validated_first(&self.scenario.rules, txn.seen[*d].absent, all_absent);
        // A lock that is being taken over is settled before anything else.
        let taking = open.iter().copied().find(|d| txn.unsure & (1 << *d) != 0);
        if let Some(d) = taking {
            self.lock(t, me, d, script);
            return;
        }
        let absent = open.iter().copied().find(first);
        for d in open.into_iter().filter(|d| absent.is_none_or(|a| a == *d)) {
            self.validate_one(t, me, d, script, requester);
        }
    }

    fn validate_one(&mut self, t: usize, me: Who, d: usize, script: &Script, requester: Requester) {
        let read = self.world.txns[t].seen[d];
        let doc = self.world.docs[d].now;
        let valid = move |w: &mut World| {
            w.txns[t].done |= 1 << d;
            if read.absent {
                // An absence is proven for this moment, even if the document existed in between.
                w.txns[t].seen[d].writer = doc.writer;
            }
        };
        if read.holder == 0 && read.version == doc.version {
            self.go("verifies", Object::Doc(d), valid);
            return;
        }
        match validity(&self.scenario.rules, &observed(&read), &view(&doc), Some(tid(me))) {
            Validity::Valid => self.go("validates", Object::Doc(d), valid),
            Validity::Changed => self.give_up(t, d, script),
            Validity::Held(holder) => {
                let holder = translate::who(holder);
                let undecided =
                    matches!(self.world.rec(holder).mark, Mark::Missing | Mark::Pending);
                if self.lacks(Rule::ReadOnlyWaits) && undecided {
                    let bare = view(&Doc { lock: 0, ..doc });
                    if validity(&self.scenario.rules, &observed(&read), &bare, None)
                        == Validity::Valid
                    {
                        self.go("validates under a lock", Object::Doc(d), valid);
                    }
                }
                // If the lock were only removed, another attempt could lock the document before the
                // next read.
                if self.knows(holder) && requester != Requester::NonPreempting {
                    self.lock(t, me, d, script);
                    return;
                }
                self.aside(d, holder, requester, None);
                // The next validation must compare with this holder, not with the holder of the
                // read.
                for step in self.steps.iter_mut().filter(|s| s.label.actor == Actor::Owner(t)) {
                    step.to.txns[t].seen[d].holder = holder;
                }
            }
        }
    }

    fn verify_locks(&mut self, t: usize) {
        let txn = self.world.txns[t];
        let open = |d: &usize| txn.held[*d] > 0 && txn.done & (1 << *d) == 0;
        let trusts = self.lacks(Rule::VerifyReadLocks);
        let Some(d) = (0..DOCS).find(open) else { return };
        if trusts || self.world.docs[d].now.version == txn.held[d] {
            self.go("verifies its lock on", Object::Doc(d), |w| w.txns[t].done |= 1 << d);
        } else {
            self.go("finds its lock moved on", Object::Doc(d), |w| {
                give_up(&mut w.txns[t], false);
            });
        }
    }

    /// The commit point: the record is written again until its state decides.
    fn commit(&mut self, t: usize, me: Who, script: &Script) {
        let txn = self.world.txns[t];
        let rec = *self.world.rec(me);
        let meddles = self.scenario.meddles();
        let committed = move |w: &mut World, answer: Option<u8>| {
            if let Some(version) = answer {
                let txn = &mut w.txns[t];
                (txn.told, txn.phase, txn.done) = (Told::Committed, Phase::Applying, 0);
                txn.own.record = if meddles { version } else { 0 };
            }
        };
        match (Commit { rules: &self.scenario.rules }).next(&standing(&rec)) {
            Settle::Write(..) => {
                let Some(record) = self.record(t, script) else {
                    self.go("cannot insert what exists", Object::Nothing, |w| {
                        give_up(&mut w.txns[t], script.heartbeat);
                        w.txns[t].attempt = self.scenario.attempts - 1;
                    });
                    return;
                };
                self.put_rec("commits", me, record, committed);
                if self.lacks(Rule::RefusalInDoubt) {
                    self.believes_refusals(t, |w| give_up(&mut w.txns[t], false));
                }
            }
            Settle::Known(_) => {
                self.go("sees its commit", Object::Rec(me), |w| committed(w, Some(0)));
            }
            Settle::Touch(_, Decision::Aborted) if txn.told == Told::Committed => {
                self.go("is undone", Object::Rec(me), |w| w.fault = Some(Fault::Undone));
            }
            settle => self.carry_out(me, settle),
        }
    }

    /// The record with its participants.
    ///
    /// `None` if a document to be inserted exists.
    fn record(&self, t: usize, script: &Script) -> Option<Rec> {
        let txn = &self.world.txns[t];
        let mut rec = Rec { mark: Mark::Committed, ..Rec::default() };
        for d in script.documents().filter(|d| txn.held[*d] > 0) {
            let absent = txn.seen[d].absent;
            rec.deeds[d] = deed(operation(change(script.uses[d]), !absent).ok()?);
            rec.versions[d] = if absent { txn.held[d] } else { 0 };
            rec.before[d] = txn.seen[d].stamp;
            rec.eras[d] = txn.seen[d].era;
        }
        let known = script.documents().map(|d| txn.seen[d].stamp);
        rec.stamp = stamp(known.max().unwrap_or_default(), t);
        Some(rec)
    }

    /// Releases the locks of an attempt that failed or only read.
    fn release(&mut self, t: usize, me: Who) {
        let txn = self.world.txns[t];
        let mine = |d: &usize| self.world.docs[*d].now.lock == me && txn.done & (1 << *d) == 0;
        let Some(d) = (0..DOCS).find(mine) else {
            self.go("has nothing to take off", Object::Nothing, |w| w.txns[t].done = u8::MAX);
            return;
        };
        self.unlock(d, me, None);
        // A lock that cannot be removed now is left to the process that finds it.
        for step in self.steps.iter_mut().filter(|s| s.label.actor == Actor::Owner(t)) {
            step.to.txns[t].done |= 1 << d;
        }
    }
}

/// Ends the attempt. Its record is decided first if a lock may still land.
pub(crate) fn give_up(txn: &mut Txn, recorded: bool) {
    txn.phase = if txn.unsure > 0 || recorded { Phase::Aborting } else { Phase::Releasing };
    txn.done = 0;
}
