//! The processing of requests: order, application, and recovery.

mod admission;
pub(crate) mod apply;
pub(crate) mod companion;
pub(crate) mod counts;
pub(crate) mod emit;
mod find;
pub(crate) mod handles;
pub(crate) mod inner;
pub(crate) mod process;
pub(crate) mod processor;
pub(crate) mod recovery;
pub(crate) mod watchers;
