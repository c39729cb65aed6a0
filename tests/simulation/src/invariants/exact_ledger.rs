//! Each balance is the sum of the acknowledged and the settled commits.

use std::collections::BTreeMap;

use crate::history::{Doc, Operation};
use crate::ledger::Ledger;
use crate::scenario::OPENING;

pub(super) fn check(ledger: &Ledger) -> Vec<String> {
    let mut violations = Vec::new();
    let committed: BTreeMap<u64, &Operation> =
        ledger.all_committed().map(|operation| (operation.number, operation)).collect();
    for (doc, content) in ledger.lasting().filter(|(doc, _)| matches!(doc, Doc::Account(_))) {
        let mut sum = OPENING;
        for number in &content.entries {
            match committed.get(number) {
                Some(operation) => sum += operation.legs.get(&doc).copied().unwrap_or(0),
                None => violations.push(format!("{doc:?} has no committed writer: {number}")),
            }
        }
        if sum != content.balance {
            violations.push(format!("{doc:?} has {}, its entries say {sum}", content.balance));
        }
    }
    violations
}
