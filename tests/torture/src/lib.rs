//! Loads with exact ledgers, and kill soaks, on real servers.
//!
//! See `cargo xtask torture`.

pub mod cluster;
pub mod fault;
pub mod life;
pub mod load;
mod memory;
pub mod overload;
pub mod partitions;
pub mod power_loss;
mod refusals;
pub mod report;
pub mod single;
pub mod systems;
pub mod upgrade;
