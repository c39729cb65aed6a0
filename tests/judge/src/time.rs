//! Real-time order.

use crate::graph::{EdgeKind, Graph};
use crate::reads::Facts;

/// Adds real-time order with a linear number of edges.
///
/// The edges go through one chain of auxiliary nodes.
///
/// The chain has one node for each acknowledgement. A transaction leads to the node of its own
/// acknowledgement, and follows the last node before its beginning.
pub(crate) fn add_order(facts: &Facts<'_>, is_strict: bool, graph: &mut Graph) {
    if is_strict {
        let mut moments = Vec::new();
        for (node, transaction) in facts.transactions.iter().enumerate() {
            moments.push((transaction.began, false, node));
            if let Some(acknowledged) = transaction.acknowledged {
                moments.push((acknowledged, true, node));
            }
        }
        moments.sort_unstable();
        let mut last: Option<usize> = None;
        for (_, is_end, node) in moments {
            if is_end {
                let chain = graph.add_node();
                graph.add(node, chain, EdgeKind::RealTime, 0);
                if let Some(last) = last {
                    graph.link(last, chain);
                }
                last = Some(chain);
            } else if let Some(last) = last {
                graph.link(last, node);
            }
        }
    }
    // The final contents were read after each known outcome.
    if let Some(end) = facts.final_read {
        for (node, transaction) in facts.transactions.iter().enumerate() {
            if transaction.is_known_committed {
                graph.add(node, end, EdgeKind::RealTime, 0);
            }
        }
    }
}
