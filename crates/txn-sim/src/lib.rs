//! Stores for tests: they stand in front of another one and count what is asked of it, or let it go wrong within what
//! the contract of [`txn_store`] allows. The [server](server::Server) behind them is simulated after real ones.

mod counting;
mod fault;
mod scroll;
pub mod server;
pub mod tapped;

pub use counting::{CountingStore, Counts};
pub use fault::{FaultPlan, FaultStore, Injected};
pub use scroll::Scroll;
