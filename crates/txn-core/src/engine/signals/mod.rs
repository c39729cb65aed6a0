//! Signals for operators: waits for locks, processes of the domain, and traces.
//!
//! Signals are hints. No decision of the protocol rests on a signal.

pub(crate) mod contention;
pub(crate) mod label;
pub(crate) mod process_entry;
pub(crate) mod processes;
pub(crate) mod transaction_span;
