//! Atomicity, by the final content of every key.

use std::collections::BTreeMap;

use super::Finding;
use crate::history::{Entry, History, Kind, Micro, Model, Outcome};

/// The known fate of a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Committed,
    Aborted,
    Open,
}

fn fate(entry: &Entry) -> Option<Fate> {
    match (entry.kind, entry.outcome) {
        (Kind::Invoke, _) => None,
        (Kind::Ok, _) | (Kind::Info, Some(Outcome::Committed)) => Some(Fate::Committed),
        (Kind::Fail, _) | (Kind::Info, Some(Outcome::Aborted)) => Some(Fate::Aborted),
        (Kind::Info, None) => Some(Fate::Open),
    }
}

/// Compares every transaction with the content of the keys.
pub(super) fn whole_or_nothing(
    history: &History,
    finals: &BTreeMap<u64, Vec<u64>>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |name: &str, explanation: String| {
        findings.push(Finding { name: name.to_owned(), explanation });
    };
    let mut held: BTreeMap<(u64, u64), usize> = BTreeMap::new();
    for (key, values) in finals {
        for value in values {
            *held.entry((*key, *value)).or_default() += 1;
        }
    }
    for entry in &history.entries {
        let Some(fate) = fate(entry) else { continue };
        let writes: Vec<_> = entry.value.iter().filter_map(Micro::written).collect();
        let counts: Vec<usize> =
            writes.iter().map(|write| held.get(write).copied().unwrap_or_default()).collect();
        let told = || format!("transaction {} of process {}", entry.index, entry.process);
        for ((key, value), count) in writes.iter().zip(&counts) {
            match (history.model, fate, count) {
                (Model::ListAppend, Fate::Committed, 0) => {
                    find(
                        "lost-write",
                        format!("{} committed, but {value} is not in key {key}", told()),
                    );
                }
                (_, Fate::Aborted, 1..) => {
                    find(
                        "aborted-write",
                        format!("{} did not commit, but {value} is in key {key}", told()),
                    );
                }
                (_, _, 2..) => {
                    find(
                        "repeated-write",
                        format!("{value} of {} is {count} times in key {key}", told()),
                    );
                }
                _ => {}
            }
        }
        let some = counts.iter().any(|count| *count > 0);
        // Registers forget, so half of a transaction is no contradiction.
        if history.model == Model::ListAppend && fate == Fate::Open && some && counts.contains(&0) {
            find("torn-write", format!("{} happened in part: {:?}", told(), entry.value));
        }
    }
    findings
}
