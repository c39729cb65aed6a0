//! What goes wrong.

use clap::ValueEnum;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// Requests and answers are lost, doubled, delayed, refused and cut. For one server.
    Network,
    /// The node with the primary is killed and started again.
    KillPrimary,
    /// The nodes are restarted one after the other.
    RollingRestart,
    /// The node with the primary is paused and goes on.
    StopAndContinue,
    /// Writes are blocked by hand.
    WriteBlock,
    /// Writes are blocked as on a full disk.
    FloodStage,
}
