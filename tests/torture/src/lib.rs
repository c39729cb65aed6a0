//! Loads with exact ledgers, and kill soaks, on real servers.
//!
//! See `cargo xtask torture`.

pub mod cluster;
pub mod fault;
pub mod load;
pub mod partitions;
pub mod power_loss;
pub mod report;
pub mod single;
pub mod systems;
pub mod upgrade;
