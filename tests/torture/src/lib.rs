//! Loads with exact books, and kill soaks, on real servers: see `cargo xtask torture`.

pub mod cluster;
pub mod fault;
pub mod load;
pub mod report;
pub mod single;
pub mod systems;
