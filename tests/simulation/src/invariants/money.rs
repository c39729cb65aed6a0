//! The total amount of money is the same in every consistent read.

use crate::history::{Content, Doc, Kind};
use crate::ledger::Ledger;
use crate::scenario::{ACCOUNTS, OPENING};

pub(super) fn check(ledger: &Ledger) -> Vec<String> {
    let expected = OPENING * i64::from(ACCOUNTS);
    let mut violations = Vec::new();
    let mut look = |who: String, sum: i64| {
        if sum != expected {
            violations.push(format!("{who} saw {sum}, not {expected}"));
        }
    };
    let is_money = |doc: &Doc| matches!(doc, Doc::Account(_));
    for audit in ledger.operations.iter().filter(|o| o.kind == Kind::Audit && o.is_committed()) {
        let found = audit.reads.iter().filter(|(doc, _)| is_money(doc));
        let sum = found.map(|(_, read)| read.as_ref().map_or(0, |c: &Content| c.balance)).sum();
        look(format!("audit {}", audit.number), sum);
    }
    let last = ledger.finals.iter().filter(|(doc, _)| is_money(doc));
    look("the final read".to_owned(), last.map(|(_, content)| content.balance).sum());
    violations
}
