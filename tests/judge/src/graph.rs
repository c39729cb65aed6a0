//! A graph of transactions and dependencies.

/// The kind of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EdgeKind {
    /// A version follows another one.
    Ww,
    /// A transaction reads a version.
    Wr,
    /// A transaction reads the version before another one.
    Rw,
    /// A transaction begins after the acknowledgement of another one.
    RealTime,
    /// The continuation of the edge that leads to an auxiliary node.
    Link,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) to: usize,
    pub(crate) kind: EdgeKind,
    /// The key of a dependency.
    pub(crate) key: u64,
}

/// A graph. The first nodes are transactions; the others are auxiliary.
///
/// An auxiliary node bundles edges from many transactions to many others. Its edges are links, so a
/// path through it has the kind of the edge that leads to it.
#[derive(Debug)]
pub(crate) struct Graph {
    edges: Vec<Vec<Edge>>,
    transactions: usize,
}

impl Graph {
    pub(crate) fn of_transactions(transactions: usize) -> Self {
        Self { edges: vec![Vec::new(); transactions], transactions }
    }

    pub(crate) fn len(&self) -> usize {
        self.edges.len()
    }

    pub(crate) fn is_transaction(&self, node: usize) -> bool {
        node < self.transactions
    }

    pub(crate) fn edges(&self, node: usize) -> &[Edge] {
        &self.edges[node]
    }

    /// Adds an auxiliary node.
    pub(crate) fn add_node(&mut self) -> usize {
        self.edges.push(Vec::new());
        self.edges.len() - 1
    }

    /// Adds an edge. An edge from a transaction to itself orders nothing, and is left out.
    pub(crate) fn add(&mut self, from: usize, to: usize, kind: EdgeKind, key: u64) {
        let edge = Edge { to, kind, key };
        // Equal edges mostly come one after the other.
        if from != to && self.edges[from].last() != Some(&edge) {
            self.edges[from].push(edge);
        }
    }

    pub(crate) fn link(&mut self, from: usize, to: usize) {
        self.add(from, to, EdgeKind::Link, 0);
    }

    /// Adds edges from each of some transactions to each of others.
    ///
    /// No transaction has an edge to itself.
    ///
    /// Two chains of auxiliary nodes keep the number of edges linear. The first chain leads to all
    /// later transactions of the sorted list, the second one to all earlier transactions.
    pub(crate) fn add_all(&mut self, from: &[usize], to: &[usize], kind: EdgeKind, key: u64) {
        if from.len() * to.len() <= 16 {
            for from in from {
                to.iter().for_each(|to| self.add(*from, *to, kind, key));
            }
            return;
        }
        let mut both: Vec<(usize, bool, bool)> = Vec::new();
        both.extend(from.iter().map(|node| (*node, true, false)));
        both.extend(to.iter().map(|node| (*node, false, true)));
        both.sort_unstable();
        both.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            if is_same {
                kept.1 |= later.1;
                kept.2 |= later.2;
            }
            is_same
        });
        for is_forward in [true, false] {
            let mut last: Option<usize> = None;
            // The chain is built against its direction: from the last node to the first.
            let order: Box<dyn Iterator<Item = &(usize, bool, bool)>> =
                if is_forward { Box::new(both.iter().rev()) } else { Box::new(both.iter()) };
            for (node, is_from, is_to) in order {
                if let (true, Some(chain)) = (*is_from, last) {
                    self.add(*node, chain, kind, key);
                }
                if *is_to {
                    let chain = self.add_node();
                    self.link(chain, *node);
                    if let Some(last) = last {
                        self.link(chain, last);
                    }
                    last = Some(chain);
                }
            }
        }
    }

    /// Returns the strongly connected components of some nodes.
    ///
    /// Only the kept edges between these nodes count.
    ///
    /// Tarjan's algorithm, without recursion. Each component comes before the components that lead
    /// to the component.
    pub(crate) fn components(
        &self,
        nodes: impl IntoIterator<Item = usize>,
        keeps: impl Fn(&Edge) -> bool,
    ) -> Vec<Vec<usize>> {
        const UNSEEN: usize = usize::MAX;
        let mut state = vec![(UNSEEN, 0, false); self.len()];
        let (mut stack, mut calls, mut count) = (Vec::new(), Vec::new(), 0);
        let mut found = Vec::new();
        for root in nodes {
            if state[root].0 != UNSEEN {
                continue;
            }
            calls.push((root, 0));
            while let Some((node, next)) = calls.last_mut() {
                let node = *node;
                if *next == 0 && state[node].0 == UNSEEN {
                    state[node] = (count, count, true);
                    count += 1;
                    stack.push(node);
                }
                if let Some(edge) = self.edges[node].get(*next) {
                    *next += 1;
                    if !keeps(edge) {
                        continue;
                    }
                    let (index, _, is_open) = state[edge.to];
                    if index == UNSEEN {
                        calls.push((edge.to, 0));
                    } else if is_open {
                        state[node].1 = state[node].1.min(index);
                    }
                    continue;
                }
                calls.pop();
                let (index, low, _) = state[node];
                if let Some((caller, _)) = calls.last() {
                    state[*caller].1 = state[*caller].1.min(low);
                }
                if low == index {
                    let mut component = Vec::new();
                    while let Some(member) = stack.pop() {
                        state[member].2 = false;
                        component.push(member);
                        if member == node {
                            break;
                        }
                    }
                    found.push(component);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reachable(graph: &Graph, from: usize) -> Vec<usize> {
        let (mut seen, mut open) = (vec![false; graph.len()], vec![from]);
        while let Some(node) = open.pop() {
            for edge in graph.edges(node) {
                if !std::mem::replace(&mut seen[edge.to], true) {
                    open.push(edge.to);
                }
            }
        }
        (0..graph.len()).filter(|node| seen[*node] && graph.is_transaction(*node)).collect()
    }

    #[test]
    fn bundle_leads_to_each_other_transaction() {
        // Writers that are no readers, so that no path has two edges.
        let mut graph = Graph::of_transactions(20);
        let (from, to): (Vec<_>, Vec<_>) = (0..20).partition(|node| node % 3 == 0);
        graph.add_all(&from, &to, EdgeKind::Rw, 1);
        for node in from {
            assert_eq!(reachable(&graph, node), to);
        }
        // Transactions that are both: each reaches all others directly, and itself only through
        // another one.
        let mut graph = Graph::of_transactions(6);
        let all: Vec<usize> = (0..6).collect();
        graph.add_all(&[3], &all, EdgeKind::Rw, 1);
        assert_eq!(reachable(&graph, 3), [0, 1, 2, 4, 5]);
        let mut graph = Graph::of_transactions(20);
        let all: Vec<usize> = (0..20).collect();
        graph.add_all(&[7], &all, EdgeKind::Rw, 1);
        assert!(!reachable(&graph, 7).contains(&7));
    }

    #[test]
    fn components_are_the_cycles() {
        let mut graph = Graph::of_transactions(6);
        for (from, to) in [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 3), (4, 5)] {
            graph.add(from, to, EdgeKind::Ww, 0);
        }
        let mut found = graph.components(0..6, |_| true);
        found.iter_mut().for_each(|component| component.sort_unstable());
        assert_eq!(found, [vec![5], vec![3, 4], vec![0, 1, 2]]);
        assert_eq!(graph.components(0..6, |edge| edge.to != 0).len(), 5);
    }
}
