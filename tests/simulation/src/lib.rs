//! The unchanged engine on a simulated store, in virtual time, by one seed.
//!
//! A seed chooses a world: how many processes with how many actors, which faults, how often, how the
//! clocks run. [`run`] lets the actors work while everything goes wrong, ends the faults, waits until
//! everything has come to its end, and looks whether the [invariants] hold. The same seed gives the same run.

mod actor;
mod campaign;
pub mod history;
pub mod invariants;
mod ledger;
pub mod process;
mod scenario;
pub mod schedules;
pub mod server;
mod virtual_time;
mod world;

pub use campaign::{Campaign, Extent, Noticed, campaign, catch};
pub use ledger::Ledger;
pub use scenario::{Clocks, Scenario};
pub use world::{Counts, Verdict, run, run_logged};
