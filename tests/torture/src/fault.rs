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
    /// The power of all nodes fails. For power losses.
    CutPower,
    /// The power fails at a certain write or sync of a disk. For power losses.
    CutPowerAtWrite,
    /// The power fails, and again while the nodes start. For power losses.
    CutPowerAtStart,
    /// The server is shut down, and a newer version starts on its data. For upgrades.
    Upgrade,
    /// The server is killed, and a newer version starts on its data. For upgrades.
    KillAndUpgrade,
}

impl Fault {
    /// Whether the fault concerns the network between nodes.
    #[must_use]
    pub fn is_between_nodes(self) -> bool {
        Self::BETWEEN_NODES.contains(&self)
    }

    /// The faults of the power.
    pub(crate) const OF_POWER: [Self; 3] =
        [Self::CutPower, Self::CutPowerAtWrite, Self::CutPowerAtStart];

    /// The faults of upgrades.
    pub(crate) const OF_UPGRADES: [Self; 2] = [Self::Upgrade, Self::KillAndUpgrade];

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
