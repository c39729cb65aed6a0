//! Shared parts of the suites: items, a log of events, a clock, and stores with faults.

mod clock;
mod dice;
mod items;
mod log;
pub(crate) mod scripted;
pub(crate) mod shop;
mod test_store;

pub(crate) use clock::Wall;
pub(crate) use dice::Dice;
pub(crate) use items::{Item, Items, config, drained};
pub(crate) use log::Log;
pub(crate) use scripted::{Dies, Fate, Scripted};
pub(crate) use shop::{Process, SharedStore, Shop};
pub(crate) use test_store::TestStore;
