//! Signals for operators: who waited for whom, and which processes use the domain.
//!
//! Signals are hints. No decision of the protocol rests on them.

pub(crate) mod contention;
pub(crate) mod label;
pub(crate) mod process_entry;
pub(crate) mod processes;
