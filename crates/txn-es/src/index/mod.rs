//! Indices: what they are, and how names find them.

pub(crate) mod admin;
pub(crate) mod definition;
pub(crate) mod indices;
pub(crate) mod mapping;
pub(crate) mod names;
pub(crate) mod templates;
pub(crate) mod term_check;
pub(crate) mod terms;
