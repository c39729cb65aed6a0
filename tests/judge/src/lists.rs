//! Dependencies of lists. Each read shows the order of all versions before it.

use std::collections::{BTreeMap, HashMap};

use crate::graph::{EdgeKind, Graph};
use crate::judgement::{Anomaly, AnomalyKind};
use crate::reads::{Facts, Read};

/// Adds the dependencies of all keys.
///
/// Reports lists that fit no order.
pub(crate) fn add_dependencies(facts: &Facts<'_>, graph: &mut Graph, anomalies: &mut Vec<Anomaly>) {
    let mut reads: BTreeMap<u64, Vec<&Read<'_>>> = BTreeMap::new();
    for read in &facts.reads {
        reads.entry(read.key).or_default().push(read);
    }
    let mut appends: HashMap<u64, Vec<usize>> = HashMap::new();
    for (writer, key) in facts.writes_of.keys() {
        appends.entry(*key).or_default().push(*writer);
    }
    for (key, reads) in reads {
        let writers = appends.remove(&key).unwrap_or_default();
        of_key(facts, key, &reads, &writers, graph, anomalies);
    }
}

fn of_key(
    facts: &Facts<'_>,
    key: u64,
    reads: &[&Read<'_>],
    writers: &[usize],
    graph: &mut Graph,
    anomalies: &mut Vec<Anomaly>,
) {
    let Some(longest) = reads.iter().max_by_key(|read| read.seen.len()) else { return };
    let order = longest.seen;
    if let Some(odd) = reads.iter().find(|read| !order.starts_with(read.seen)) {
        let (one, two) = (facts.name(longest.reader), facts.name(odd.reader));
        let why = format!("{one} read key {key} as {order:?}, {two} as {:?}", odd.seen);
        let kind = AnomalyKind::IncompatibleOrder;
        anomalies.push(facts.anomaly(kind, &[longest.reader, odd.reader], why));
    }
    let mut shown: HashMap<usize, Vec<u64>> = HashMap::new();
    for value in order {
        if let Some(writer) = facts.writer(key, *value) {
            shown.entry(writer).or_default().push(*value);
        }
    }
    let mut unseen = Vec::new();
    for writer in writers {
        let Some(appended) = facts.writes_of.get(&(*writer, key)) else { continue };
        let Some(shown) = shown.get(writer) else {
            unseen.push(*writer);
            continue;
        };
        // A list that ends within the appends of a transaction is an intermediate read.
        let is_cut = appended.starts_with(shown) && order.last() == shown.last();
        if shown != appended && !is_cut {
            let name = facts.name(*writer);
            let why = format!("{name} appended {appended:?} to key {key}, which has {shown:?}");
            anomalies.push(facts.anomaly(AnomalyKind::TornWrite, &[*writer], why));
        }
    }
    unseen.sort_unstable();
    // Aborted and invented values have no writer; their anomalies are reported elsewhere.
    let writer_at = |place: usize| facts.writer(key, order[place]);
    let mut last = None;
    for place in 0..order.len() {
        let writer = writer_at(place);
        if let (Some(last), Some(writer)) = (last, writer) {
            graph.add(last, writer, EdgeKind::Ww, key);
        }
        last = writer.or(last);
    }
    // A version contains all earlier ones, so an append that the longest list lacks follows it.
    if let Some(last) = last {
        graph.add_all(&[last], &unseen, EdgeKind::Ww, key);
    }
    let mut readers_of_all = Vec::new();
    for read in reads {
        let Some(version) = read.version.filter(|version| order.starts_with(version)) else {
            continue;
        };
        if let Some(writer) = version.last().and_then(|value| facts.writer(key, *value)) {
            graph.add(writer, read.reader, EdgeKind::Wr, key);
        }
        match (version.len()..order.len()).find_map(writer_at) {
            Some(next) => graph.add(read.reader, next, EdgeKind::Rw, key),
            None => readers_of_all.push(read.reader),
        }
    }
    readers_of_all.sort_unstable();
    graph.add_all(&readers_of_all, &unseen, EdgeKind::Rw, key);
}
