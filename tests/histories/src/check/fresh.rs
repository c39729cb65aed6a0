//! Real-time order, checked a second time and separately.
//!
//! A read that begins after the acknowledgement of an append must show it. `adya` checks this as a
//! part of strict serialisability. `adya` is young, and this check is simple.

use std::collections::BTreeMap;

use super::Finding;
use crate::history::{History, Kind, Micro, Seen};

/// Returns reads of lists that miss a write.
///
/// The write was acknowledged before the read began.
pub(super) fn stale_reads(history: &History) -> Vec<Finding> {
    let mut acknowledged: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    // For each process with a transaction under way: the acknowledged writes of the keys that it
    // asks for.
    let mut owed: BTreeMap<u64, BTreeMap<u64, usize>> = BTreeMap::new();
    let mut findings = Vec::new();
    for entry in &history.entries {
        if entry.kind == Kind::Invoke {
            let count = |key| (key, acknowledged.get(&key).map_or(0, Vec::len));
            let counts = entry.value.iter().map(Micro::key).map(count);
            owed.insert(entry.process, counts.collect());
            continue;
        }
        let owed = owed.remove(&entry.process).unwrap_or_default();
        if entry.kind != Kind::Ok {
            continue;
        }
        for micro in &entry.value {
            let Micro::Read { key, seen: Seen::List(list) } = micro else { continue };
            let count = owed.get(key).copied().unwrap_or_default();
            let before = acknowledged.get(key).map_or(&[][..], |all| &all[..count]);
            if let Some(missed) = before.iter().find(|value| !list.contains(value)) {
                findings.push(Finding {
                    name: "stale-read".to_owned(),
                    explanation: format!(
                        "transaction {} of process {} read key {key} as {list:?}, but {missed} was acknowledged before \
                         it began",
                        entry.index, entry.process
                    ),
                });
            }
        }
        for micro in &entry.value {
            if let Micro::Append { key, value } = micro {
                acknowledged.entry(*key).or_default().push(*value);
            }
        }
    }
    findings
}
