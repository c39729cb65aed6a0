//! The order of the protocol: which step comes after which. Each machine takes what was seen or answered, and says what
//! comes next; it has no clock, no task and no store. The driver carries the steps out, and the models run the same machines.
//!
//! - [`settle`]: what is to be written about one document, until an acknowledged write has settled it.
//! - [`record`]: the record of an attempt: decided by whoever meets its locks, committed and finished by its owner, and kept
//!   alive from one slot.
//! - [`attempt`]: the phases of an attempt, what it locks, what it validates.
//! - [`roll_forward`]: applying a committed transaction, step by step.
//! - [`domain`]: the document that names the partitions, and its transitions.
//! - [`partition`]: making and dropping the partition of a day.
//! - [`invariant`]: what always holds, each an error that names itself.

pub mod attempt;
pub mod domain;
pub mod invariant;
pub mod partition;
pub mod record;
pub mod roll_forward;
pub mod settle;
