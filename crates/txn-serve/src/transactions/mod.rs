//! Transactions as data: operations, reads with tokens, conditional commits, outcomes.

pub(crate) mod commit;
pub(crate) mod outcome;
mod plan;
mod prediction;
pub(crate) mod read;
pub(crate) mod reservation;
mod update_queue;
