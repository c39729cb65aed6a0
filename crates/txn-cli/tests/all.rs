//! The command, as operators and scripts run it, on an embedded file.
//!
//! Each test plants its situation by the public API, and closes the file before the command opens
//! it.

mod browser;
mod desk;
mod driver;
mod gateway;
mod owners;
mod parts;
mod ran;
mod signals;
mod systems;
mod transactions;
