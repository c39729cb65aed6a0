//! Where nothing goes wrong but that a part is slow, and what owners write of themselves is not in it, nobody who lives is
//! taken for dead.

use crate::ledger::Ledger;

pub(super) fn check(ledger: &Ledger) -> Vec<String> {
    if !ledger.scenario.calm {
        return Vec::new();
    }
    let buried = ledger.buried.iter();
    buried.map(|(tid, by)| format!("{by} took {tid} for dead, which was at work")).collect()
}
