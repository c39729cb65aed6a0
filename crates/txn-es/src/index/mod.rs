//! Indices: found, checked and created.

pub(crate) mod collection;
pub(crate) mod creation;
pub(crate) mod definition;
pub(crate) mod hidden;
pub(crate) mod making;
pub(crate) mod mapping;
pub(crate) mod measuring;
pub(crate) mod names;
pub(crate) mod templates;
pub(crate) mod terms;
