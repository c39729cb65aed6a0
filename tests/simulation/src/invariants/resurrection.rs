//! No document returns after its deletion, or disappears without one.

use std::collections::BTreeMap;

use crate::history::Doc;
use crate::ledger::Ledger;

pub(super) fn check(ledger: &Ledger) -> Vec<String> {
    let mut violations = Vec::new();
    // The deletions of each document, by the operation that inserted the document.
    let mut deletions: BTreeMap<(Doc, u64), Vec<u64>> = BTreeMap::new();
    let mut insertions: Vec<(Doc, u64)> = Vec::new();
    let mut undecided: Vec<Doc> = Vec::new();
    for operation in &ledger.operations {
        let passing = operation.writes.iter().filter(|(doc, _)| !doc.lasts());
        match ledger.committed(operation) {
            Some(false) => {}
            None => undecided.extend(passing.map(|(doc, _)| *doc)),
            Some(true) => {
                for (doc, content) in passing {
                    match (content, operation.reads.get(doc).and_then(Option::as_ref)) {
                        (Some(_), _) => insertions.push((*doc, operation.number)),
                        (None, Some(read)) => {
                            deletions.entry((*doc, read.by)).or_default().push(operation.number);
                        }
                        (None, None) => {}
                    }
                }
            }
        }
    }
    for ((doc, by), who) in &deletions {
        if who.len() > 1 {
            violations.push(format!("{doc:?} of {by} was deleted by {who:?}"));
        }
    }
    for insertion in &insertions {
        let (doc, by) = insertion;
        let stands = ledger.finals.get(doc).is_some_and(|content| content.by == *by);
        match deletions.get(insertion) {
            Some(who) if stands => {
                violations.push(format!("{doc:?} of {by}, deleted by {who:?}, is back"));
            }
            None if !stands && !undecided.contains(doc) => {
                violations.push(format!("{doc:?} of {by} is gone without a deletion"));
            }
            _ => {}
        }
    }
    for (doc, content) in ledger.finals.iter().filter(|(doc, _)| !doc.lasts()) {
        // No operation wrote the initial content.
        let first = content.by == 0;
        if !first && !insertions.contains(&(*doc, content.by)) && !undecided.contains(doc) {
            violations.push(format!("{doc:?} has no committed insert: {}", content.by));
        }
    }
    violations
}
