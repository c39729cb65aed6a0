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
    /// A node is cut off from the other nodes. Some or no clients are cut off, too. For partitions.
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
    /// The links of a node lose packets at random. For partitions.
    LossyLink,
    /// The wall clocks of all coordinators jump. For partitions.
    JumpClocks,
    /// The power of all nodes fails. For power losses.
    CutPower,
    /// The power fails at a certain write or sync of a disk. For power losses.
    CutPowerAtWrite,
    /// The power fails, and again while the nodes start. For power losses.
    CutPowerAtStart,
    /// The server restarts as a newer version. The newer version uses the same data. For upgrades.
    Upgrade,
    /// The server is killed, and a newer version starts on its data. For upgrades.
    KillAndUpgrade,
    /// A shard moves to another node. For a server's life.
    MoveShard,
    /// All shards of a node move to other nodes. For a server's life.
    DrainNode,
    /// The number of replicas becomes 0, 1, 2 and 1. For a server's life.
    ChangeReplicas,
    /// A snapshot is taken, and restored under other names. For a server's life.
    SnapshotAndRestore,
    /// All indices are merged to one segment. For a server's life.
    ForceMerge,
    /// An index is closed, and opened again. For a server's life.
    CloseAndOpen,
    /// The mapping of an index gets new fields. For a server's life.
    GrowMapping,
    /// Index templates are created, changed and removed. For a server's life.
    ChangeTemplates,
    /// The interval of the refresh of an index changes. For a server's life.
    ChangeRefresh,
    /// The caches of all indices are cleared. For a server's life.
    ClearCaches,
    /// All indices are flushed. For a server's life.
    Flush,
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

    /// The jobs of a server's life.
    pub(crate) const OF_LIFE: [Self; 11] = [
        Self::MoveShard,
        Self::DrainNode,
        Self::ChangeReplicas,
        Self::SnapshotAndRestore,
        Self::ForceMerge,
        Self::CloseAndOpen,
        Self::GrowMapping,
        Self::ChangeTemplates,
        Self::ChangeRefresh,
        Self::ClearCaches,
        Self::Flush,
    ];

    /// The faults of the network between nodes.
    pub(crate) const BETWEEN_NODES: [Self; 7] = [
        Self::CutNode,
        Self::CutMaster,
        Self::CutPrimary,
        Self::OneWay,
        Self::CutWithClient,
        Self::SlowLink,
        Self::LossyLink,
    ];
}

impl fmt::Display for Fault {
    /// Writes the name on the command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}
