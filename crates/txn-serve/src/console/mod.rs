//! The console: pages for operators, without scripts.

mod actions;
mod answers;
mod documents;
mod domain;
mod graph;
mod overview;
mod page;
mod parts;
mod plot;
mod transactions;
mod waits;

pub(crate) use answers::answer;
pub(crate) use page::error_page;
