//! What the owner of a staged transaction waits for.

use txn_protocol::rule::Rule;
use txn_protocol::rules::staged::{Answer, Owning, owning};

use crate::scenario::Scenario;
use crate::state::{Fault, Phase, Told, World};

/// The bits of `Txn::done` while the bulk is under way: each document, the record, the dry runs.
pub(crate) const RECORD: u8 = 1 << 6;
pub(crate) const DRY_RUNS: u8 = 1 << 7;

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
