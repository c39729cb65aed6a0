//! Tests of applications with transactions: simulated runs, and stores with faults.
//!
//! A [`Simulation`] runs the closures of an application in several processes, with faults by a
//! seed. Stores that wrap another store count calls, add faults within the contract of
//! [`txn_store`], or follow a script ([`Scripted`]). A simulated [server](server::Server) behaves
//! like real servers.

mod counting;
mod fault;
#[doc(hidden)]
pub mod machine;
mod scripted;
mod scroll;
pub mod server;
mod simulation;
pub mod tapped;

pub use counting::{CountingStore, Counts};
pub use fault::{FaultPlan, FaultStore, Injected};
pub use scripted::{Breakpoint, Call, Closed, Fate, Scripted, Step};
pub use scroll::Scroll;
pub use simulation::{BoxError, Failure, Report, Simulation, Worker};
