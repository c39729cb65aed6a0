//! The start of server processes, and their supervision.

pub(crate) mod account;
pub(crate) mod command;
pub(crate) mod health;
pub(crate) mod java;
pub(crate) mod launch;
pub(crate) mod ports;
pub(crate) mod process;
pub(crate) mod setup;
pub(crate) mod supervised;
