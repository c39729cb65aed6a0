//! Transfers: their rules, their execution, and submitted ones.

pub(crate) mod closing;
pub(crate) mod hook;
pub(crate) mod ledger;
pub(crate) mod pending;
pub(crate) mod requests;
pub(crate) mod rules;
pub(crate) mod transfer;
