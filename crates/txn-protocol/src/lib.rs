//! The protocol of the transactions, as it can be read, run and modelled without a store: ids, documents and records as
//! data, and every decision as a pure function.
//!
//! No part of the public API of the library: it changes without notice.

#![warn(clippy::disallowed_methods)]

pub mod board;
pub mod clock;
pub mod document;
pub mod format;
pub mod history;
pub mod ids;
pub mod machines;
pub mod record;
pub mod rule;
pub mod rules;
pub mod timekeeper;
