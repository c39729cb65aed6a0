//! The faults.

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
}
