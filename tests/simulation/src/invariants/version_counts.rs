//! A document counts each of its writes once.

use std::collections::BTreeSet;

use crate::ledger::Ledger;

pub(super) fn check(ledger: &Ledger) -> Vec<String> {
    let mut violations = Vec::new();
    for (doc, content) in ledger.lasting() {
        let once: BTreeSet<&u64> = content.entries.iter().collect();
        let count = content.entries.len();
        if once.len() != count || content.writes != count as u64 {
            violations.push(format!("{doc:?} counts {} writes: {content:?}", content.writes));
        }
        if count > 0 && content.entries.last() != Some(&content.by) {
            violations.push(format!("{doc:?} differs from its last entry: {content:?}"));
        }
    }
    violations
}
