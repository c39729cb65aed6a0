//! What a user calls: domains, transactions, readers, and what operators need. Everything here stands on
//! [`attempt`](crate::attempt) and [`engine`](crate::engine), which know nothing of it.

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
