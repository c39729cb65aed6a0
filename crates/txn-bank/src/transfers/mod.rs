//! Transfers: their rules, their execution, and submitted ones.

pub(crate) mod companion;
pub(crate) mod pending;
pub(crate) mod requests;
pub(crate) mod rules;
pub(crate) mod transfer;
