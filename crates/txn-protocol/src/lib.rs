//! The protocol as data and pure functions, without a store.
//!
//! Ids, documents and records are plain data, and each decision is a pure function. The engine and
//! the models call the same functions.
//!
//! This crate is no part of the public API: it changes without notice.

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
