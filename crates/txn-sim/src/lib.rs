//! Stores for tests, which wrap another store.
//!
//! The wrappers count calls, add faults within the contract of [`txn_store`], or follow a script
//! ([`Scripted`]). A simulated [server](server::Server) behaves like real servers.

mod counting;
mod fault;
mod scripted;
mod scroll;
pub mod server;
pub mod tapped;

pub use counting::{CountingStore, Counts};
pub use fault::{FaultPlan, FaultStore, Injected};
pub use scripted::{Breakpoint, Call, Closed, Fate, Scripted, Step};
pub use scroll::Scroll;
