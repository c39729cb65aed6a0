//! Values that no transaction wrote.
//!
//! The values are in a read or in the final state.
//!
//! `adya` orders the values of a list by its longest read. A value that only one read shows gives
//! no cycle, so an invented value at the end of a list passes.

use std::collections::BTreeSet;

use super::Finding;
use crate::history::{History, Kind, Micro, Seen};

/// Returns values that were read too early, or never written.
///
/// A value is too early if no transaction had asked to write it.
pub(super) fn invented_values(history: &History) -> Vec<Finding> {
    // A requested write may show, whether or not its transaction committed.
    let mut asked: BTreeSet<(u64, u64)> = BTreeSet::new();
    let mut findings = Vec::new();
    let mut check = |asked: &BTreeSet<_>, key, values: &[u64], who: &dyn Fn() -> String| {
        for value in values.iter().filter(|value| !asked.contains(&(key, **value))) {
            let explanation = format!("{}: key {key} holds {value}, which is not written", who());
            findings.push(Finding { name: "thin-air".to_owned(), explanation });
        }
    };
    for entry in &history.entries {
        if entry.kind == Kind::Invoke {
            asked.extend(entry.value.iter().filter_map(Micro::written));
            continue;
        }
        let who = || format!("transaction {} of process {}", entry.index, entry.process);
        for micro in &entry.value {
            match micro {
                Micro::Read { key, seen: Seen::List(values) } => check(&asked, *key, values, &who),
                Micro::Read { key, seen: Seen::Value(value) } => {
                    check(&asked, *key, &[*value], &who);
                }
                _ => {}
            }
        }
    }
    for (key, values) in history.finals.iter().flatten() {
        check(&asked, *key, values, &|| "in the end".to_owned());
    }
    findings
}
