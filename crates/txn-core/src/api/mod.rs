//! The public API: domains, transactions, readers, and calls for operators.
//!
//! The API depends on [`attempt`](crate::attempt) and [`engine`](crate::engine). Neither of them
//! depends on the API.

mod barrier;
pub(crate) mod collection;
pub(crate) mod domain;
pub(crate) mod history;
mod maintenance;
mod opening;
pub(crate) mod outcome;
pub(crate) mod reader;
pub(crate) mod rebuild;
mod release;
pub(crate) mod transaction;
