//! The owners of accounts, and their totals.

pub(crate) mod derive;
pub(crate) mod listing;
pub(crate) mod owners;
