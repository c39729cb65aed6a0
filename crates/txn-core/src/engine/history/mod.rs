//! Collections with history: past versions of documents.

pub(crate) mod heads;
pub(crate) mod purge;
