//! No write skew in any consistent read.
//!
//! At least one of two people is on call, at most one of two claims exists, and exactly one token
//! exists.

use std::collections::BTreeMap;

use crate::history::{Content, Doc, Kind};
use crate::ledger::Ledger;
use crate::scenario::TOKENS;

pub(super) fn check(ledger: &Ledger) -> Vec<String> {
    let mut violations = Vec::new();
    let mut look = |who: String, seen: &BTreeMap<Doc, Option<Content>>| {
        let found = |doc| seen.get(&doc).and_then(Option::as_ref);
        let is_on = |n| found(Doc::OnCall(n)).is_some_and(|content| content.on);
        let knows = |doc| seen.contains_key(&doc);
        if knows(Doc::OnCall(0)) && knows(Doc::OnCall(1)) && !is_on(0) && !is_on(1) {
            violations.push(format!("{who} saw no person on call"));
        }
        if found(Doc::Claim(0)).is_some() && found(Doc::Claim(1)).is_some() {
            violations.push(format!("{who} saw both claims"));
        }
        let tokens: Vec<Doc> = (0..TOKENS).map(Doc::Token).collect();
        let count = tokens.iter().filter(|doc| found(**doc).is_some()).count();
        if tokens.iter().all(|doc| knows(*doc)) && count != 1 {
            violations.push(format!("{who} saw {count} tokens"));
        }
    };
    for operation in ledger.operations.iter().filter(|operation| operation.is_committed()) {
        if matches!(operation.kind, Kind::Audit | Kind::OnCall | Kind::Claim | Kind::Token) {
            look(
                format!("operation {} ({:?})", operation.number, operation.kind),
                &operation.reads,
            );
        }
    }
    let pairs = (0..2).flat_map(|n| [Doc::OnCall(n), Doc::Claim(n)]);
    let all = pairs.chain((0..TOKENS).map(Doc::Token));
    let finals = all.map(|doc| (doc, ledger.finals.get(&doc).cloned()));
    look("the final read".to_owned(), &finals.collect());
    violations
}
