//! A read of history shows each transaction whole or not at all.

use crate::history::{Content, Doc, Kind, Operation};
use crate::ledger::Ledger;
use crate::scenario::{ACCOUNTS, OPENING, TOKENS};

pub(super) fn check(ledger: &Ledger) -> Vec<String> {
    let looks = ledger.operations.iter().filter(|look| look.kind == Kind::LookBack);
    let seen = looks.filter(|look| look.is_committed() && !look.reads.is_empty());
    seen.flat_map(|look| violations(ledger, look)).collect()
}

fn violations(ledger: &Ledger, look: &Operation) -> Vec<String> {
    let mut violations = Vec::new();
    let found = |doc: &Doc| look.reads.get(doc).and_then(Option::as_ref);
    let number = look.number;
    let money = (0..ACCOUNTS).filter_map(|n| found(&Doc::Account(n)));
    let sum: i64 = money.map(|content: &Content| content.balance).sum();
    if sum != OPENING * i64::from(ACCOUNTS) {
        violations.push(format!("{number} found {sum}"));
    }
    let tokens = (0..TOKENS).filter(|n| found(&Doc::Token(*n)).is_some()).count();
    if tokens != 1 {
        violations.push(format!("{number} found {tokens} tokens"));
    }
    for operation in &ledger.operations {
        let written = operation.writes.keys().filter(|doc| doc.lasts());
        let written: Vec<&Doc> = written.filter(|doc| look.reads.contains_key(*doc)).collect();
        let shows = |doc: &&&Doc| {
            found(doc).is_some_and(|content| content.entries.contains(&operation.number))
        };
        let shown = written.iter().filter(shows).count();
        if shown != 0 && shown != written.len() {
            let half = operation.number;
            violations.push(format!("{number} found {half} in {shown} of {written:?}"));
        }
        if let (Some(commit), Some(moment)) = (operation.commit, look.moment)
            && (commit.unix_time() <= moment) != (shown == written.len())
            && !written.is_empty()
        {
            let other = operation.number;
            violations
                .push(format!("{number} found {shown} of {other}, which committed as {commit}"));
        }
        let journal = Doc::Journal(operation.number);
        if found(&journal).is_some() && shown == 0 {
            violations.push(format!("{number} found {journal:?} without its transfer"));
        }
    }
    violations
}
