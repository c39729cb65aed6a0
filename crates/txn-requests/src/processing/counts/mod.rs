//! Counts of requests: those that wait, and those of one pass.

pub(crate) mod backlog;
pub(crate) mod open;
pub(crate) mod tally;
