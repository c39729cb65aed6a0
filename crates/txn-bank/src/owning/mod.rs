//! The owners of accounts, and their totals.

pub(crate) mod listing;
pub(crate) mod owners;
pub(crate) mod rebuild;
