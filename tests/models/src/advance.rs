//! What an owner does without asking anybody: it goes on to the next phase when it is through with one.

use txn_protocol::rule::Rule;

use crate::owner::is_pessimistic;
use crate::parallel::all_answered;
use crate::scenario::{Kind, Scenario, Script, Use};
use crate::state::{DOCS, Phase, Told, Txn, World};

/// Goes on as far as nothing has to be asked.
pub(crate) fn advance(scenario: &Scenario, w: &mut World, t: usize) {
    while w.txns[t].help.who == 0 && next(scenario, w, t) {}
}

fn next(scenario: &Scenario, w: &mut World, t: usize) -> bool {
    let (script, before) = (&scenario.scripts[t], w.txns[t]);
    let txn = &mut w.txns[t];
    let early = scenario.lacks(Rule::ValidateAfterLocks);
    match before.phase {
        Phase::Reading if is_pessimistic(script, txn) => {
            if script.documents().any(|d| before.held[d] == 0) {
                return false;
            }
            after_locks(txn, script);
        }
        Phase::Reading if script.kind == Kind::Instant => return false,
        Phase::Reading => {
            if before.unsure > 0 || script.documents().any(|d| !before.seen[d].read) {
                return false;
            }
            after_reads(scenario, txn, script, early);
        }
        Phase::Locking => {
            if !scenario.wanted_locks(t, txn).is_empty() {
                return false;
            }
            after_locks(txn, script);
            if txn.phase == Phase::Validating && (early || scenario.lacks(Rule::ValidateReads)) {
                after_validation(txn, script);
            }
        }
        Phase::Validating => {
            if !scenario.unvalidated(t, txn).is_empty() {
                return false;
            }
            txn.done = 0;
            if early && txn.held == [0; DOCS] && script.writes() {
                txn.phase = Phase::Locking;
            } else {
                after_validation(txn, script);
            }
        }
        Phase::Verifying => {
            if (0..DOCS).any(|d| before.held[d] > 0 && before.done & (1 << d) == 0) {
                return false;
            }
            (txn.told, txn.phase, txn.done) = (Told::Committed, Phase::Releasing, 0);
        }
        Phase::Staging => return all_answered(scenario, w, t),
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

/// Whether a document may carry the transaction's lock.
fn has_or_had(txn: &Txn, d: usize) -> bool {
    txn.held[d] > 0 || txn.unsure & (1 << d) != 0
}

/// The attempt is over: the next one, or the caller is told.
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

fn after_reads(scenario: &Scenario, txn: &mut Txn, script: &Script, validate_first: bool) {
    txn.done = 0;
    // A create has no condition that a fence could shut out.
    let inserts = script.written().any(|d| txn.seen[d].absent);
    // Whoever recovers could not validate them.
    let reads = script.documents().any(|d| script.uses[d] == Use::Read);
    let explicit = (inserts && !scenario.lacks(Rule::StageNoInserts))
        || (reads && !scenario.lacks(Rule::StageNoReads));
    match script.kind {
        Kind::Explicit if validate_first => txn.phase = Phase::Validating,
        Kind::Explicit | Kind::ReadOnly => txn.phase = Phase::Locking,
        Kind::Parallel if explicit => txn.phase = Phase::Locking,
        Kind::Parallel => txn.phase = Phase::Staging,
        Kind::Single => txn.phase = Phase::Committing,
        Kind::Reader | Kind::Instant => {
            (txn.phase, txn.told) = (Phase::Done, Told::Committed);
        }
    }
}

fn after_locks(txn: &mut Txn, script: &Script) {
    txn.done = 0;
    if script.documents().any(|d| txn.held[d] == 0) {
        txn.phase = Phase::Validating;
    } else {
        after_validation(txn, script);
    }
}

fn after_validation(txn: &mut Txn, script: &Script) {
    let nothing = |d: usize| script.uses[d] == Use::Delete && txn.seen[d].absent;
    let writes = |d: usize| !matches!(script.uses[d], Use::Read | Use::No) && !nothing(d);
    let commits = script.documents().any(writes);
    txn.phase = if commits { Phase::Committing } else { Phase::Verifying };
}

impl Scenario {
    /// The documents that a transaction still has to lock.
    pub(crate) fn wanted_locks(&self, t: usize, txn: &Txn) -> Vec<usize> {
        let script = &self.scripts[t];
        script.documents().filter(|d| self.wants_lock(t, txn, *d) && txn.held[*d] == 0).collect()
    }

    /// The documents that a transaction only read and still has to validate.
    pub(crate) fn unvalidated(&self, t: usize, txn: &Txn) -> Vec<usize> {
        let early = self.lacks(Rule::ValidateAfterLocks);
        self.scripts[t]
            .documents()
            .filter(|d| txn.held[*d] == 0 && txn.done & (1 << *d) == 0)
            .filter(|d| !(early && self.wants_lock(t, txn, *d)))
            .collect()
    }

    /// Whether a document is locked rather than validated.
    fn wants_lock(&self, t: usize, txn: &Txn, d: usize) -> bool {
        let script = &self.scripts[t];
        match script.uses[d] {
            Use::No => false,
            Use::Put | Use::Insert | Use::Delete => true,
            Use::Read if script.lock_reads => true,
            Use::Read if self.lacks(Rule::LockAbsentReads) => false,
            // An absence has no version that could be validated together with others.
            Use::Read => {
                let only_read = || script.documents().filter(|d| script.uses[*d] == Use::Read);
                let absent = only_read().filter(|d| txn.seen[*d].absent).count();
                let alone = if script.writes() { only_read().count() <= 1 } else { absent <= 1 };
                txn.seen[d].absent && !alone
            }
        }
    }
}
