//! Multi-document transactions on any document store with conditional writes.

pub mod fields;
pub mod store;
