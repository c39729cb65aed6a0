//! The public API: domains, transactions, readers, and calls for operators.
//!
//! The API depends on [`attempt`](crate::attempt) and [`engine`](crate::engine). Neither of them
//! depends on the API.
//!
//! A call that is generic over a closure, a codec or an id is compiled in the crate of the
//! application. Such a call does its work in a boxed future of a function without type parameters,
//! so that the engine is compiled once, with this crate.

pub(crate) mod admin;
pub mod candidates;
pub(crate) mod collection;
pub(crate) mod domain;
pub(crate) mod history;
pub(crate) mod reader;
pub(crate) mod shutdown;
pub(crate) mod transaction;
mod transaction_run;
