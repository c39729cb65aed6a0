//! Shared parts: worlds and processes, store scripts, plain client, clocks.

mod clock;
mod dice;
mod items;
mod log;
mod plain;
pub(crate) mod processes;
pub(crate) mod script;
mod world;

pub(crate) use clock::{Calendar, Wall};
pub(crate) use dice::Dice;
pub(crate) use items::{Item, Items, config, drained, fresh_tid, recorded};
pub(crate) use log::Log;
pub(crate) use plain::{Plain, record_key};
pub(crate) use processes::{Process, SharedStore, Shop};
pub(crate) use script::{Dies, Looks};
pub(crate) use world::{Setup, World};
