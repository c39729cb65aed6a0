//! Identities of indices: aliases, copies and blocks.

pub(crate) mod blocks;
pub(crate) mod copies;
pub(crate) mod identify;
pub(crate) mod target;
pub(crate) mod uuid;
