//! Stores for tests, which wrap another store.
//!
//! The wrappers count calls, or add faults within the contract of [`txn_store`]. A simulated
//! [server](server::Server) behaves like real servers.

mod counting;
mod fault;
mod scroll;
pub mod server;
pub mod tapped;

pub use counting::{CountingStore, Counts};
pub use fault::{FaultPlan, FaultStore, Injected};
pub use scroll::Scroll;
