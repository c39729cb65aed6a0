//! A transaction writes all its documents or none.

use crate::history::Doc;
use crate::ledger::Ledger;

pub(super) fn check(ledger: &Ledger) -> Vec<String> {
    let mut violations = Vec::new();
    let pruned: Vec<Doc> = ledger
        .operations
        .iter()
        .filter(|operation| ledger.committed(operation) != Some(false))
        .flat_map(|operation| &operation.writes)
        .filter_map(|(doc, content)| content.is_none().then_some(*doc))
        .collect();
    for operation in &ledger.operations {
        let number = operation.number;
        let lasting: Vec<Doc> = operation.writes.keys().filter(|d| d.lasts()).copied().collect();
        let written = lasting.iter().filter(|doc| ledger.history_of(**doc).contains(&number));
        let written = written.count();
        if written != 0 && written != lasting.len() {
            violations.push(format!("operation {number} is half written: {operation:?}"));
        }
        let journal = Doc::Journal(number);
        if operation.writes.contains_key(&journal) && !pruned.contains(&journal) {
            let stands = ledger.finals.contains_key(&journal);
            if stands != (written > 0) {
                violations.push(format!("operation {number}: journal {stands}, money {written}"));
            }
        }
    }
    violations
}
