//! What administrators do to indices, servers and networks beside a load of transactions, and a judge of what is left.
//!
//! One load of transfers with idempotency keys, pairs and counters runs in several processes' worth of domains. Beside it a
//! [case](cases::Case) does one administrator's job. In the end everything is quiet, and the judge compares what a plain
//! client reads with what callers were told: every acknowledged transaction is whole, or reported by name.

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
