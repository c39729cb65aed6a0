//! Transactions that are merged into one attempt.

pub(crate) mod members;
pub(crate) mod reservation;
pub(crate) mod serial_batch;
