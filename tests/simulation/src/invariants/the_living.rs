//! In a calm run no process takes a running attempt for dead.
//!
//! The slow parts of a calm run exclude the writes of records by their owners.

use crate::ledger::Ledger;

pub(super) fn check(ledger: &Ledger) -> Vec<String> {
    if !ledger.scenario.calm {
        return Vec::new();
    }
    let buried = ledger.buried.iter();
    buried.map(|(tid, by)| format!("{by} took the running attempt {tid} for dead")).collect()
}
