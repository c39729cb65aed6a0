//! The public API: domains, transactions, readers, and calls for operators.
//!
//! The API depends on [`attempt`](crate::attempt) and [`engine`](crate::engine). Neither of them
//! depends on the API.

pub(crate) mod admin;
pub(crate) mod collection;
pub(crate) mod domain;
pub(crate) mod history;
pub(crate) mod reader;
pub(crate) mod shutdown;
pub(crate) mod transaction;
