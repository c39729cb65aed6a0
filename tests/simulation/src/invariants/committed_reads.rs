//! Each content that an operation reads was committed, and stays.

use crate::ledger::Ledger;

pub(super) fn check(ledger: &Ledger) -> Vec<String> {
    let mut violations = Vec::new();
    for operation in
        ledger.operations.iter().filter(|operation| ledger.reads_are_certain(operation))
    {
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
