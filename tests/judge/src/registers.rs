//! Dependencies of registers, whose reads show one version and no order.
//!
//! The order of versions is inferred: if a writer of a key precedes a reader, it also precedes the
//! writer of the version that was read. If the writer of that version precedes another writer of
//! the key, then so does the reader. Both rules are applied until no dependency is new.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::graph::{EdgeKind, Graph};
use crate::reads::Facts;

/// The committed writers and the readers of one key.
#[derive(Debug, Default)]
struct Key {
    writers: Vec<usize>,
    /// Readers by the position of the writer in `writers`.
    readers: HashMap<usize, Vec<usize>>,
    /// Readers of the initial state.
    initial: Vec<usize>,
}

/// Adds the dependencies of all keys.
pub(crate) fn add_dependencies(facts: &Facts<'_>, graph: &mut Graph) {
    let keys = keys(facts);
    for (name, key) in &keys {
        graph.add_all(&key.initial, &key.writers, EdgeKind::Rw, *name);
        for (writer, readers) in &key.readers {
            for reader in readers {
                graph.add(key.writers[*writer], *reader, EdgeKind::Wr, *name);
            }
        }
    }
    let mut known = HashSet::new();
    loop {
        let components = graph.components(0..graph.len(), |_| true);
        if components.len() < graph.len() {
            // A cycle: everything would follow from it.
            return;
        }
        // Components come in reverse topological order, and each has one node.
        let order: Vec<usize> = components.into_iter().rev().flatten().collect();
        let mut inferred = Vec::new();
        for (name, key) in &keys {
            if key.writers.len() > 1 {
                infer(graph, &order, *name, key, &mut inferred);
            }
        }
        let before = known.len();
        for edge in inferred {
            if known.insert(edge) {
                let (from, to, is_ww, name) = edge;
                graph.add(from, to, if is_ww { EdgeKind::Ww } else { EdgeKind::Rw }, name);
            }
        }
        if known.len() == before {
            return;
        }
    }
}

fn keys(facts: &Facts<'_>) -> BTreeMap<u64, Key> {
    let mut keys: BTreeMap<u64, Key> = BTreeMap::new();
    for (writer, key) in facts.writes_of.keys() {
        keys.entry(*key).or_default().writers.push(*writer);
    }
    for key in keys.values_mut() {
        key.writers.sort_unstable();
    }
    for read in &facts.reads {
        let Some(version) = read.version else { continue };
        let key = keys.entry(read.key).or_default();
        let Some(value) = version.first() else {
            key.initial.push(read.reader);
            continue;
        };
        let position = |writer| key.writers.binary_search(&writer).ok();
        if let Some(writer) = facts.writer(read.key, *value).and_then(position) {
            key.readers.entry(writer).or_default().push(read.reader);
        }
    }
    for key in keys.values_mut() {
        key.initial.sort_unstable();
        key.initial.dedup();
    }
    keys
}

/// Infers dependencies of one key from the paths between its transactions.
fn infer(
    graph: &Graph,
    order: &[usize],
    name: u64,
    key: &Key,
    inferred: &mut Vec<(usize, usize, bool, u64)>,
) {
    let words = key.writers.len().div_ceil(64);
    let mut position = vec![usize::MAX; graph.len()];
    for (place, writer) in key.writers.iter().enumerate() {
        position[*writer] = place;
    }
    // Of each node: the writers of the key with a path to it.
    let mut before = vec![0_u64; graph.len() * words];
    let mut own = vec![0_u64; words];
    let mut writers_in_order = Vec::with_capacity(key.writers.len());
    for node in order {
        own.copy_from_slice(&before[node * words..(node + 1) * words]);
        let place = position[*node];
        if place != usize::MAX {
            own[place / 64] |= 1 << (place % 64);
            writers_in_order.push(place);
        }
        for edge in graph.edges(*node) {
            let to = &mut before[edge.to * words..(edge.to + 1) * words];
            to.iter_mut().zip(&own).for_each(|(to, own)| *to |= own);
        }
    }
    let precedes =
        |writer: usize, node: usize| before[node * words + writer / 64] & (1 << (writer % 64)) != 0;
    for (nth, place) in writers_in_order.iter().enumerate() {
        let Some(readers) = key.readers.get(place) else { continue };
        let writer = key.writers[*place];
        // Writers with a path to a reader, and none yet to the writer.
        let mut earlier = vec![0_u64; words];
        for reader in readers {
            let row = &before[reader * words..(reader + 1) * words];
            earlier.iter_mut().zip(row).for_each(|(earlier, row)| *earlier |= row);
        }
        let row = &before[writer * words..(writer + 1) * words];
        earlier.iter_mut().zip(row).for_each(|(earlier, row)| *earlier &= !row);
        earlier[place / 64] &= !(1 << (place % 64));
        for (other, node) in key.writers.iter().enumerate() {
            // If the writer precedes the other one, the second rule shows the contradiction.
            let is_earlier = earlier[other / 64] & (1 << (other % 64)) != 0;
            if is_earlier && !precedes(*place, *node) {
                inferred.push((*node, writer, true, name));
            }
        }
        // The next versions: later ones follow from them.
        let mut next: Vec<usize> = Vec::new();
        for other in &writers_in_order[nth + 1..] {
            let node = key.writers[*other];
            if precedes(*place, node) && !next.iter().any(|next| precedes(*next, node)) {
                next.push(*other);
            }
        }
        for reader in readers {
            for node in next.iter().map(|next| key.writers[*next]).filter(|node| node != reader) {
                inferred.push((*reader, node, false, name));
            }
        }
    }
}
