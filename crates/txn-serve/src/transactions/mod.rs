//! Transactions as data: operations, reads with tokens, conditional commits, outcomes.

pub(crate) mod commit;
pub(crate) mod outcome;
pub(crate) mod read;
