//! No acknowledged transaction is undone, and no aborted one seen.

use crate::history::{Doc, Fate};
use crate::ledger::Ledger;

pub(super) fn check(ledger: &Ledger) -> Vec<String> {
    let mut violations = Vec::new();
    for operation in &ledger.operations {
        let number = operation.number;
        for doc in operation.writes.keys().filter(|doc| doc.lasts()) {
            let stands = ledger.history_of(*doc).contains(&number);
            match &operation.fate {
                Fate::Committed if !stands => {
                    violations.push(format!("operation {number} was undone in {doc:?}"));
                }
                Fate::Aborted(why) if stands => {
                    violations.push(format!("operation {number} ({why}) wrote {doc:?}"));
                }
                _ => {}
            }
        }
        if let Fate::Aborted(why) = &operation.fate {
            let seen_by = ledger.all_committed().find(|other| {
                let mut read = other.reads.values().flatten();
                ledger.reads_are_certain(other)
                    && read.any(|content| content.entries.contains(&number))
            });
            if let Some(other) = seen_by {
                let other = other.number;
                violations.push(format!("operation {number} ({why}) was seen by {other}"));
            }
        }
        // The later answer of the engine, compared with the documents.
        let lasting: Vec<&Doc> = operation.writes.keys().filter(|doc| doc.lasts()).collect();
        if let (Some(said), Some(doc)) = (ledger.settled.get(&number), lasting.first()) {
            let stands = ledger.history_of(**doc).contains(&number);
            if *said != stands {
                violations.push(format!("operation {number}: said {said}, stands {stands}"));
            }
        }
    }
    violations
}
