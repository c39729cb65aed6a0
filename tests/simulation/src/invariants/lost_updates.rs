//! Every committed write starts from the content before it.
//!
//! The content is that of the write before, of the same document.

use std::collections::BTreeMap;

use crate::history::Operation;
use crate::ledger::Ledger;

pub(super) fn check(ledger: &Ledger) -> Vec<String> {
    let mut violations = Vec::new();
    let by_number: BTreeMap<u64, &Operation> =
        ledger.operations.iter().map(|operation| (operation.number, operation)).collect();
    for (doc, content) in ledger.lasting() {
        for (at, number) in content.entries.iter().enumerate() {
            let before = &content.entries[..at];
            let read = by_number.get(number).and_then(|operation| operation.reads.get(&doc));
            let read = read.and_then(Option::as_ref).map(|content| content.entries.as_slice());
            if read != Some(before) {
                violations.push(format!("{number} wrote {doc:?} from {read:?}, not {before:?}"));
            }
        }
    }
    violations
}
