//! What is written to clean up is bounded by a constant for each lock and each open record.

use crate::ledger::Ledger;

/// Writes for each lock and each open record: a touch or a void, an apply, a mark, and each of them again.
const EACH: u64 = 8;
/// Writes of each pass, whatever it finds: the domain's own documents.
const PASS: u64 = 6;

pub(super) fn check(ledger: &Ledger) -> Vec<String> {
    let clean_up = ledger.clean_up;
    let most = EACH * clean_up.found + PASS * (clean_up.passes + 1);
    match clean_up.written > most {
        true => vec![format!("{} writes, not {most} at most: {clean_up:?}", clean_up.written)],
        false => Vec::new(),
    }
}
