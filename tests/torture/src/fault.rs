//! The faults.

use std::fmt;

use clap::ValueEnum;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// Requests and answers are lost, doubled, delayed, refused and cut. For one server.
    Network,
    /// The node with the primary is killed and restarted.
    KillPrimary,
    /// The nodes are restarted one after the other.
    RollingRestart,
    /// The node with the primary is paused and continued.
    StopAndContinue,
    /// An administrator blocks writes.
    WriteBlock,
    /// Writes are blocked as on a full disk.
    FloodStage,
    /// A node is cut off from the other nodes, and from some or no clients. For partitions.
    CutNode,
    /// The elected master is cut off. For partitions.
    CutMaster,
    /// The node with the primary is cut off. For partitions.
    CutPrimary,
    /// A node is cut off in one direction only. For partitions.
    OneWay,
    /// The node with the primary and one client are cut off together. For partitions.
    CutWithClient,
    /// A node has a slow link. For partitions.
    SlowLink,
}

impl Fault {
    /// Whether the fault concerns the network between nodes.
    #[must_use]
    pub fn is_between_nodes(self) -> bool {
        Self::BETWEEN_NODES.contains(&self)
    }

    /// The faults of the network between nodes.
    pub(crate) const BETWEEN_NODES: [Self; 6] = [
        Self::CutNode,
        Self::CutMaster,
        Self::CutPrimary,
        Self::OneWay,
        Self::CutWithClient,
        Self::SlowLink,
    ];
}

impl fmt::Display for Fault {
    /// Writes the name on the command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}
