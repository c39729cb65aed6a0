//! Multi-document transactions on any document store with conditional writes.

pub mod clock;
mod document;
mod error;
pub mod fields;
mod record;
mod rules;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
mod tid;

pub use document::{Image, JsonError};
pub use error::{Error, ErrorKind, Result};
pub use tid::{Age, Day, ParseTidError, Tid};
