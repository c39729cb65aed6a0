//! Multi-document transactions on any document store with conditional writes.

pub mod fields;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
