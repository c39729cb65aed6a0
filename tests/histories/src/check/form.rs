//! The form of a history.
//!
//! `adya` calls a history sound that it cannot analyse (values written twice, operations of the
//! other model). So this check precedes `adya`.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Entry, History, Kind, Micro, Model, Seen};

/// The error in the form of the history, if there is one.
pub(super) fn flaw(history: &History) -> Option<String> {
    let mut under_way: BTreeMap<u64, &Entry> = BTreeMap::new();
    let mut retired = BTreeSet::new();
    let mut written = BTreeSet::new();
    for (place, entry) in history.entries.iter().enumerate() {
        let at = format!("entry {place}");
        if entry.index != place as u64 {
            return Some(format!("{at} says that it is entry {}", entry.index));
        }
        if let Some(micro) = entry.value.iter().find(|micro| !fits(history.model, micro)) {
            return Some(format!("{at} has an operation of another model: {micro:?}"));
        }
        if entry.kind == Kind::Invoke {
            if retired.contains(&entry.process) || under_way.insert(entry.process, entry).is_some()
            {
                return Some(format!("{at}: process {} cannot begin anything now", entry.process));
            }
            let mut writes = entry.value.iter().filter_map(Micro::written);
            if let Some((key, value)) = writes.find(|write| !written.insert(*write)) {
                return Some(format!("{at} writes {value} to key {key}, as another one did"));
            }
            continue;
        }
        let Some(asked) = under_way.remove(&entry.process) else {
            return Some(format!("{at}: process {} has nothing to end", entry.process));
        };
        if !asked.value.iter().map(asked_for).eq(entry.value.iter().map(asked_for)) {
            return Some(format!("{at} ends something else than entry {} began", asked.index));
        }
        if entry.kind == Kind::Info {
            retired.insert(entry.process);
        }
    }
    under_way.values().next().map(|entry| format!("entry {} never ends", entry.index))
}

fn fits(model: Model, micro: &Micro) -> bool {
    match micro {
        Micro::Append { .. } | Micro::Read { seen: Seen::List(_), .. } => {
            model == Model::ListAppend
        }
        Micro::Write { .. } | Micro::Read { seen: Seen::Value(_), .. } => model == Model::Register,
        Micro::Read { seen: Seen::Nil, .. } => true,
    }
}

/// An operation without the result of a read.
fn asked_for(micro: &Micro) -> (u64, Option<(u64, u64)>) {
    (micro.key(), micro.written())
}
