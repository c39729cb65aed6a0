//! Cycles of dependencies, and their names.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use crate::graph::{Edge, EdgeKind, Graph};
use crate::judgement::{Anomaly, AnomalyKind};
use crate::reads::Facts;

/// The maximum number of edges that the search for a name follows.
///
/// Beyond the bound a cycle is still found, and may get a weaker name.
const NAMING: usize = 5_000_000;

/// The maximum number of cycles that are named.
const MOST_CYCLES: usize = 20;

/// Returns one anomaly for each component with a cycle.
///
/// The anomaly has the strongest name that was found.
pub(crate) fn anomalies(graph: &Graph, facts: &Facts<'_>) -> Vec<Anomaly> {
    let mut found = Vec::new();
    let mut is_plain_cycle = vec![false; graph.len()];
    let mut budget = NAMING;
    for with_time in [false, true] {
        let allowed = |edge: &Edge| with_time || edge.kind != EdgeKind::RealTime;
        for component in graph.components(0..graph.len(), allowed) {
            // Real time adds nothing to a component that is cyclic without it.
            if component.len() < 2 || component.iter().any(|node| is_plain_cycle[*node]) {
                continue;
            }
            if !with_time {
                component.iter().for_each(|node| is_plain_cycle[*node] = true);
            }
            if found.len() < MOST_CYCLES {
                let mut search = Search::new(graph, &component, with_time, &mut budget);
                found.push(name(&mut search, &component, facts, with_time));
            }
        }
    }
    found
}

/// Names a component by its worst cycle.
fn name(
    search: &mut Search<'_>,
    component: &[usize],
    facts: &Facts<'_>,
    with_time: bool,
) -> Anomaly {
    let ww: &[EdgeKind] = &[EdgeKind::Ww];
    let ww_wr: &[EdgeKind] = &[EdgeKind::Ww, EdgeKind::Wr];
    let (kind, cycle) = if let Some(cycle) = search.cycle_of(component, ww) {
        (AnomalyKind::G0, cycle)
    } else if let Some(cycle) = search.cycle_of(component, ww_wr) {
        (AnomalyKind::G1c, cycle)
    } else if let Some(cycle) = search.cycle_with_one_rw(component, ww_wr) {
        (AnomalyKind::GSingle, cycle)
    } else if let Some(cycle) = search.cycle_without_adjacent_rw(component) {
        (AnomalyKind::GNonadjacent, cycle)
    } else {
        let all = &[EdgeKind::Ww, EdgeKind::Wr, EdgeKind::Rw];
        (AnomalyKind::G2Item, search.cycle_of(component, all).unwrap_or_default())
    };
    let kind = if with_time { in_real_time(kind) } else { kind };
    let (nodes, text) = told(&cycle, search.graph, facts);
    facts.anomaly(kind, &nodes, text)
}

fn in_real_time(kind: AnomalyKind) -> AnomalyKind {
    match kind {
        AnomalyKind::G0 => AnomalyKind::G0Realtime,
        AnomalyKind::G1c => AnomalyKind::G1cRealtime,
        AnomalyKind::GSingle => AnomalyKind::GSingleRealtime,
        AnomalyKind::GNonadjacent => AnomalyKind::GNonadjacentRealtime,
        _ => AnomalyKind::G2ItemRealtime,
    }
}

/// Returns the transactions of a cycle, and its text without auxiliary nodes.
fn told(cycle: &[(usize, Edge)], graph: &Graph, facts: &Facts<'_>) -> (Vec<usize>, String) {
    let mut nodes = Vec::new();
    let mut text = String::new();
    // A cycle may be found from an auxiliary node. The text begins with a transaction.
    let start = cycle.iter().position(|(from, _)| graph.is_transaction(*from)).unwrap_or(0);
    for (from, edge) in cycle[start..].iter().chain(&cycle[..start]) {
        if !graph.is_transaction(*from) {
            continue;
        }
        nodes.push(*from);
        let how = match edge.kind {
            EdgeKind::Ww => format!("-ww {}->", edge.key),
            EdgeKind::Wr => format!("-wr {}->", edge.key),
            EdgeKind::Rw => format!("-rw {}->", edge.key),
            EdgeKind::RealTime | EdgeKind::Link => "-before->".to_owned(),
        };
        text.push_str(&format!("{} {how} ", facts.name(*from)));
    }
    if let Some(first) = nodes.first() {
        text.push_str(&facts.name(*first));
    }
    (nodes, text)
}

/// A path, as edges with their sources.
type Path = Vec<(usize, Edge)>;

/// The search within one component.
struct Search<'g> {
    graph: &'g Graph,
    is_member: Vec<bool>,
    with_time: bool,
    budget: &'g mut usize,
}

impl<'g> Search<'g> {
    fn new(graph: &'g Graph, component: &[usize], with_time: bool, budget: &'g mut usize) -> Self {
        let mut is_member = vec![false; graph.len()];
        component.iter().for_each(|node| is_member[*node] = true);
        Self { graph, is_member, with_time, budget }
    }

    /// Whether the search may follow an edge.
    fn allows(&self, edge: &Edge, kinds: &[EdgeKind]) -> bool {
        let fits = match edge.kind {
            EdgeKind::Link => true,
            EdgeKind::RealTime => self.with_time,
            kind => kinds.contains(&kind),
        };
        fits && self.is_member[edge.to]
    }

    /// Returns a cycle of edges of these kinds.
    fn cycle_of(&mut self, component: &[usize], kinds: &[EdgeKind]) -> Option<Path> {
        let nodes = component.iter().copied();
        let parts = self.graph.components(nodes, |edge| self.allows(edge, kinds));
        let part = parts.into_iter().find(|part| part.len() > 1)?;
        let start = *part.iter().find(|node| self.graph.is_transaction(**node))?;
        self.path(start, start, |_, edge| kinds.contains(&edge.kind), false, usize::MAX)
    }

    /// Returns a cycle with exactly one `rw`.
    fn cycle_with_one_rw(&mut self, component: &[usize], others: &[EdgeKind]) -> Option<Path> {
        self.cycle_after_rw(component, |_, edge| others.contains(&edge.kind))
    }

    /// Returns a cycle in which no `rw` follows another one.
    fn cycle_without_adjacent_rw(&mut self, component: &[usize]) -> Option<Path> {
        self.cycle_after_rw(component, |after_rw, edge| edge.kind != EdgeKind::Rw || !after_rw)
    }

    /// Returns a cycle that begins, but does not end, with `rw`.
    fn cycle_after_rw(
        &mut self,
        component: &[usize],
        may_follow: impl Fn(bool, &Edge) -> bool,
    ) -> Option<Path> {
        for node in component {
            for first in self.graph.edges(*node) {
                if first.kind != EdgeKind::Rw || !self.is_member[first.to] {
                    continue;
                }
                let budget = *self.budget;
                if budget == 0 {
                    return None;
                }
                if let Some(mut path) = self.path(first.to, *node, &may_follow, true, budget) {
                    path.insert(0, (*node, *first));
                    return Some(path);
                }
            }
        }
        None
    }

    /// Returns a shortest path in the component. It ends without an `rw` if it begins after one.
    fn path(
        &mut self,
        from: usize,
        to: usize,
        may_follow: impl Fn(bool, &Edge) -> bool,
        after_rw: bool,
        mut budget: usize,
    ) -> Option<Path> {
        // A state is a node, and whether the last dependency was an `rw`.
        let mut came: HashMap<usize, (usize, Edge)> = HashMap::new();
        let state = |node: usize, after_rw: bool| 2 * node + usize::from(after_rw);
        let start = state(from, after_rw);
        let mut open = VecDeque::from([start]);
        let mut end = None;
        'search: while let Some(at) = open.pop_front() {
            let (node, after) = (at / 2, at % 2 == 1);
            for edge in self.graph.edges(node) {
                if budget == 0 {
                    break 'search;
                }
                budget -= 1;
                let is_free = matches!(edge.kind, EdgeKind::Link | EdgeKind::RealTime);
                let is_allowed = self.is_member[edge.to]
                    && (is_free || may_follow(after, edge))
                    && (self.with_time || edge.kind != EdgeKind::RealTime);
                if !is_allowed {
                    continue;
                }
                let next = match edge.kind {
                    EdgeKind::Rw => state(edge.to, true),
                    EdgeKind::Link => state(edge.to, after),
                    _ => state(edge.to, false),
                };
                if let Entry::Vacant(vacant) = came.entry(next) {
                    vacant.insert((at, *edge));
                    if edge.to == to && (!after_rw || next % 2 == 0) {
                        end = Some(next);
                        break 'search;
                    }
                    open.push_back(next);
                }
            }
        }
        if after_rw {
            *self.budget = budget;
        }
        let mut path = Vec::new();
        let mut at = end?;
        loop {
            let (before, edge) = *came.get(&at)?;
            path.push((before / 2, edge));
            at = before;
            // The start of a cycle is also its end, so the first step back is always taken.
            if at == start {
                break;
            }
        }
        path.reverse();
        Some(path)
    }
}
