//! A verified read shows each write acknowledged before its start.
//!
//! After a barrier the documents contain these writes without the engine.

use crate::history::Kind;
use crate::ledger::Ledger;

pub(super) fn check(ledger: &Ledger) -> Vec<String> {
    let mut violations = Vec::new();
    let looks = ledger.operations.iter().filter(|operation| {
        let proves = match operation.kind {
            Kind::VerifiedLook => !ledger.may_have_seen_a_mirage(operation),
            // A scan may hide a document that has to be applied.
            Kind::Barrier => ledger.scenario.manners.scan_hides <= 0.0,
            _ => false,
        };
        proves && operation.is_committed()
    });
    for look in looks {
        for (doc, content) in &look.reads {
            let seen = content.as_ref().map_or(&[][..], |content| &content.entries);
            let missed = ledger.operations.iter().find(|other| {
                other.is_committed()
                    && other.writes.contains_key(doc)
                    && other.ended.is_some_and(|end| end < look.began)
                    && !seen.contains(&other.number)
            });
            if let Some(missed) = missed {
                let (number, missed) = (look.number, missed.number);
                violations.push(format!("operation {number} did not see {missed} in {doc:?}"));
            }
        }
    }
    violations
}
