//! The processing of requests: order, application, and recovery.

pub(crate) mod apply;
pub(crate) mod companion;
pub(crate) mod emit;
pub(crate) mod handles;
pub(crate) mod process;
pub(crate) mod processor;
pub(crate) mod recovery;
pub(crate) mod watchers;
