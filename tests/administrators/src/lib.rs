//! Administrators' work during a load of transactions, and its judge.
//!
//! The load has transfers with idempotency keys, pairs and counters, on several domains that act
//! like processes. During the load a [case](cases::Case) does one administrator's job. At the end,
//! at rest, the judge compares the reads of a plain client with the outcomes of callers. Every
//! acknowledged transaction is whole, or reported by name.

mod book;
pub mod cases;
mod found;
mod judge;
mod load;
pub mod report;
mod reports;
pub mod server;
mod stage;

pub use stage::Outcome;
