//! Slow links.

use super::Network;
use super::cuts::Port;

/// The speed of a slow link, in kilobits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(pub u32);

impl Network {
    /// Returns two commands of `tc` for a node.
    ///
    /// The first command concerns what the node receives, the second what the node sends.
    fn at_both_ends(&self, node: usize, action: &str) -> Vec<String> {
        let port = Port::Node(node).to_string();
        let bridge = self.bridge_namespace();
        let namespace = &self.namespaces()[node];
        vec![
            format!("tc -n {bridge} qdisc {action} dev {port} root"),
            format!("tc -n {namespace} qdisc {action} dev eth0 root"),
        ]
    }

    /// Returns the commands that slow a node down.
    ///
    /// A packet waits for at most half a second in a queue, and is lost in a full queue.
    pub(super) fn slowing(&self, node: usize, Rate(rate): Rate) -> Vec<String> {
        let queue = format!("tbf rate {rate}kbit burst 8kb latency 500ms");
        let ends = self.at_both_ends(node, "replace").into_iter();
        ends.map(|end| format!("{end} {queue}")).collect()
    }

    /// Returns the commands that end [`Network::slowing`].
    pub(super) fn unslowing(&self, node: usize) -> Vec<String> {
        self.at_both_ends(node, "del")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_are_slowed() {
        let network = Network { number: 2, nodes: 3 };
        assert_eq!(
            network.slowing(1, Rate(256)),
            [
                "tc -n txnp2-bridge qdisc replace dev node-2 root tbf rate 256kbit burst 8kb \
                 latency 500ms",
                "tc -n txnp2-node-2 qdisc replace dev eth0 root tbf rate 256kbit burst 8kb \
                 latency 500ms",
            ]
        );
        assert_eq!(network.unslowing(0)[1], "tc -n txnp2-node-1 qdisc del dev eth0 root");
    }
}
