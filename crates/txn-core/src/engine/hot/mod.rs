//! Hot documents: what a process keeps in memory so that its next transaction reaches a document
//! faster.

pub(crate) mod document_cache;
pub(crate) mod handoff;
