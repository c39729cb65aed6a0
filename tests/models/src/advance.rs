//! Transitions of an owner between phases, without a request.

use txn_protocol::machines::attempt::{self, Footprint, locks_absences, operation};
use txn_protocol::record::Op;

use crate::scenario::{Kind, Scenario, Use};
use crate::state::{DOCS, Phase, Told, Txn, World};
use crate::translate::change;

/// Advances until a request is necessary.
pub(crate) fn advance(scenario: &Scenario, w: &mut World, t: usize) {
    while w.txns[t].foreign.who == 0 && next(scenario, w, t) {}
}

fn next(scenario: &Scenario, w: &mut World, t: usize) -> bool {
    let (script, before) = (&scenario.scripts[t], w.txns[t]);
    let txn = &mut w.txns[t];
    match before.phase {
        Phase::Reading if script.is_pessimistic(txn) => {
            if script.documents().any(|d| before.held[d] == 0) {
                return false;
            }
            go_on(scenario, w, t, attempt::Phase::Locking);
        }
        Phase::Reading if script.kind == Kind::Instant => return false,
        Phase::Reading => {
            if before.unsure > 0 || script.documents().any(|d| !before.seen[d].read) {
                return false;
            }
            after_reads(scenario, w, t);
        }
        Phase::Locking => {
            if !scenario.wanted_locks(t, txn).is_empty() {
                return false;
            }
            go_on(scenario, w, t, attempt::Phase::Locking);
        }
        Phase::Validating => {
            if !scenario.unvalidated(t, txn).is_empty() {
                return false;
            }
            go_on(scenario, w, t, attempt::Phase::Validating);
        }
        Phase::Verifying => {
            if (0..DOCS).any(|d| before.held[d] > 0 && before.done & (1 << d) == 0) {
                return false;
            }
            (txn.told, txn.phase, txn.done) = (Told::Committed, Phase::Releasing, 0);
        }
        Phase::Releasing => {
            if (0..DOCS).any(|d| has_or_had(txn, d) && before.done & (1 << d) == 0) {
                return false;
            }
            released(txn, scenario.attempts);
        }
        _ => return false,
    }
    true
}

/// Whether a document may have the transaction's lock.
fn has_or_had(txn: &Txn, d: usize) -> bool {
    txn.held[d] > 0 || txn.unsure & (1 << d) != 0
}

/// Ends the attempt.
///
/// The next attempt begins, or the caller receives the answer.
fn released(txn: &mut Txn, attempts: u8) {
    if txn.told == Told::Nothing && txn.attempt + 1 < attempts {
        let attempt = txn.attempt + 1;
        *txn = Txn { attempt, after: txn.after, ..Txn::default() };
        return;
    }
    if txn.told == Told::Nothing {
        txn.told = Told::Failed;
    }
    txn.phase = Phase::Done;
}

fn after_reads(scenario: &Scenario, w: &mut World, t: usize) {
    let (script, txn) = (&scenario.scripts[t], &mut w.txns[t]);
    txn.done = 0;
    match script.kind {
        Kind::Explicit | Kind::ReadOnly => go_on(scenario, w, t, attempt::Phase::Reading),
        Kind::Single => txn.phase = Phase::Committing,
        Kind::Reader | Kind::Instant => {
            (txn.phase, txn.told) = (Phase::Done, Told::Committed);
        }
    }
}

/// Moves to the phase after a complete one.
fn go_on(scenario: &Scenario, w: &mut World, t: usize, through: attempt::Phase) {
    let (script, txn) = (&scenario.scripts[t], w.txns[t]);
    let changes = |d: usize| operation(change(script.uses[d]), !txn.seen[d].absent) != Ok(Op::Read);
    let footprint = Footprint {
        to_lock: !scenario.wanted_locks(t, &txn).is_empty(),
        to_validate: !scenario.unvalidated(t, &txn).is_empty(),
        commits: script.documents().any(changes),
    };
    let txn = &mut w.txns[t];
    txn.done = 0;
    txn.phase = match through.next(&scenario.rules, footprint) {
        attempt::Phase::Reading => Phase::Reading,
        attempt::Phase::Locking => Phase::Locking,
        attempt::Phase::Validating => Phase::Validating,
        attempt::Phase::Verifying => Phase::Verifying,
        attempt::Phase::Committing => Phase::Committing,
    };
}

impl Scenario {
    /// The documents that a transaction still has to lock.
    pub(crate) fn wanted_locks(&self, t: usize, txn: &Txn) -> Vec<usize> {
        let script = &self.scripts[t];
        script.documents().filter(|d| self.wants_lock(t, txn, *d) && txn.held[*d] == 0).collect()
    }

    /// The documents that a transaction only read and still has to validate.
    pub(crate) fn unvalidated(&self, t: usize, txn: &Txn) -> Vec<usize> {
        self.scripts[t]
            .documents()
            .filter(|d| txn.held[*d] == 0 && txn.done & (1 << *d) == 0)
            .filter(|d| !self.wants_lock(t, txn, *d))
            .collect()
    }

    /// Whether a document is locked rather than validated.
    fn wants_lock(&self, t: usize, txn: &Txn, d: usize) -> bool {
        let script = &self.scripts[t];
        match script.uses[d] {
            Use::No => false,
            Use::Put | Use::Insert | Use::Delete => true,
            Use::Read if script.lock_reads => true,
            Use::Read => {
                let only_read = || script.documents().filter(|d| script.uses[*d] == Use::Read);
                let absent = only_read().filter(|d| txn.seen[*d].absent).count();
                let (writes, only_read) = (script.writes(), only_read().count());
                txn.seen[d].absent && locks_absences(&self.rules, writes, only_read, absent)
            }
        }
    }
}
