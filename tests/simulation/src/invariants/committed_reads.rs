//! Whatever anybody reads was committed, and stays.

use crate::ledger::Ledger;

pub(super) fn check(ledger: &Ledger) -> Vec<String> {
    let mut violations = Vec::new();
    for operation in &ledger.operations {
        // Only what a transaction validated is certain when primaries crash.
        let validated = operation.is_committed() && !operation.kind.is_look();
        if !validated && ledger.may_have_seen_a_mirage(operation) {
            continue;
        }
        for (doc, content) in operation.reads.iter().filter(|(doc, _)| doc.lasts()) {
            let seen = content.as_ref().map_or(&[][..], |content| &content.entries);
            if !ledger.history_of(*doc).starts_with(seen) {
                let (number, kind) = (operation.number, operation.kind);
                violations.push(format!(
                    "operation {number} ({kind:?}) read {seen:?} in {doc:?}, which became {:?}",
                    ledger.history_of(*doc)
                ));
            }
        }
    }
    violations
}
