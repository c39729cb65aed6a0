//! Simulation of the unchanged engine on a simulated store, in virtual time.
//!
//! A seed chooses the processes and their actors, the faults and their rates, and the clocks of a
//! run. [`run`] lets the actors work under faults, ends the faults, waits until all work has ended,
//! and checks the [invariants]. The same seed gives the same run.

mod actor;
mod campaign;
mod counts;
pub mod coverage;
mod disks;
pub mod history;
pub mod invariants;
mod ledger;
mod made_again;
mod meddle;
mod past;
mod run;
mod scenario;
pub mod schedules;
mod watch;
mod witness;

pub use campaign::{Campaign, Extent, Noticed, campaign, catch, catch_by_seed, catch_in};
pub use counts::{Counts, RunResult};
pub use coverage::Coverage;
pub use ledger::{CleanUp, Ledger};
pub use run::{run, run_recorded, run_twice, run_with};
pub use scenario::{Annex, Clocks, Scenario, Slow, Switch, Troubles};
pub use txn_sim::machine::Recording;
pub use watch::LongLock;
