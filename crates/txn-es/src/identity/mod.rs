//! Identities of indices: aliases and copies.

pub(crate) mod copies;
pub(crate) mod identify;
pub(crate) mod target;
pub(crate) mod uuid;
