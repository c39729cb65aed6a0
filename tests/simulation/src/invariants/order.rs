//! The committed transactions have a serial order that respects real time.
//!
//! A transaction that was acknowledged before another one began comes first.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Doc, Operation};
use crate::ledger::Ledger;

/// The transactions that must follow each transaction, with the reasons.
type Edges = BTreeMap<u64, BTreeMap<u64, String>>;

pub(super) fn check(ledger: &Ledger) -> Vec<String> {
    let committed: Vec<&Operation> =
        ledger.all_committed().filter(|operation| !operation.kind.is_look()).collect();
    let mut edges = Edges::new();
    let mut edge = |from: u64, to: u64, why: String| {
        if from != to {
            edges.entry(from).or_default().entry(to).or_insert(why);
        }
    };
    for (doc, content) in ledger.lasting() {
        for pair in content.entries.windows(2) {
            edge(pair[0], pair[1], format!("wrote {doc:?}"));
        }
    }
    for operation in &committed {
        let number = operation.number;
        for (doc, read) in &operation.reads {
            let entries = read.as_ref().map_or(&[][..], |content| &content.entries);
            if let Some(last) = entries.last() {
                edge(*last, number, format!("wrote the {doc:?} read"));
            }
            if doc.lasts() {
                // The first version that the operation did not see was written after it.
                if let Some(next) = ledger.history_of(*doc).get(entries.len()) {
                    edge(number, *next, format!("read before the write of {doc:?}"));
                }
            } else if let Some(read) = read {
                for other in committed.iter().filter(|other| deleted(other, *doc, read.by)) {
                    edge(number, other.number, format!("read before the deletion of {doc:?}"));
                }
            }
        }
        for later in &committed {
            if operation.is_committed() && operation.ended.is_some_and(|end| end < later.began) {
                edge(number, later.number, "ended before it began".to_owned());
            }
        }
    }
    match cycle(&committed, &edges) {
        Some(cycle) => vec![format!("no order is possible: {}", cycle.join(", "))],
        None => Vec::new(),
    }
}

/// Whether the operation deleted the document that another one had inserted.
fn deleted(operation: &Operation, doc: Doc, inserted_by: u64) -> bool {
    let found = operation.reads.get(&doc).and_then(Option::as_ref);
    operation.writes.get(&doc) == Some(&None) && found.is_some_and(|found| found.by == inserted_by)
}

/// The shortest of the cycles found from each operation, in words.
fn cycle(committed: &[&Operation], edges: &Edges) -> Option<Vec<String>> {
    let mut left: BTreeSet<u64> = committed.iter().map(|operation| operation.number).collect();
    // An operation without a predecessor or a successor is on no cycle.
    loop {
        let after = |n: u64| edges.get(&n).into_iter().flat_map(BTreeMap::keys);
        let reached: BTreeSet<u64> = left.iter().flat_map(|n| after(*n)).copied().collect();
        let keep = |n: &u64| reached.contains(n) && after(*n).any(|to| left.contains(to));
        let kept: BTreeSet<u64> = left.iter().copied().filter(keep).collect();
        if kept.len() == left.len() {
            break;
        }
        left = kept;
    }
    left.iter().filter_map(|start| walk(*start, &left, edges)).min_by_key(Vec::len)
}

/// Searches breadth first from an operation back to itself.
fn walk(start: u64, among: &BTreeSet<u64>, edges: &Edges) -> Option<Vec<String>> {
    let mut came: BTreeMap<u64, (u64, &str)> = BTreeMap::new();
    let mut queue = std::collections::VecDeque::from([start]);
    while let Some(at) = queue.pop_front() {
        for (to, why) in edges.get(&at).into_iter().flatten().filter(|(to, _)| among.contains(to)) {
            if came.contains_key(to) {
                continue;
            }
            came.insert(*to, (at, why));
            if *to == start {
                let mut path = Vec::new();
                let mut at = start;
                loop {
                    let (from, why) = came[&at];
                    path.push(format!("{from} {why}: {at}"));
                    at = from;
                    if at == start {
                        path.reverse();
                        return Some(path);
                    }
                }
            }
            queue.push_back(*to);
        }
    }
    None
}
