//! The order of the protocol: state machines that name the next step.
//!
//! A machine takes an observation or an answer, and returns the next step. A machine has no clock,
//! no task and no store. The engine carries the steps out, and the models run the same machines.
//!
//! - [`settle`]: the writes to one document, until an acknowledged write settles it.
//! - [`record`]: the record of an attempt: decision, commit, finish, and the slot of the owner's
//!   writes.
//! - [`attempt`]: the phases of an attempt, its locks, and its validation.
//! - [`roll_forward`]: the order of steps of an apply.
//! - [`domain`]: the domain document, and its transitions.
//! - [`partition`]: creation and drop of the partition of a day.
//! - [`invariant`]: runtime invariants, each an error with a name.

pub mod attempt;
pub mod domain;
pub mod invariant;
pub mod partition;
pub mod record;
pub mod roll_forward;
pub mod settle;
