//! Hot documents: what a process keeps in memory so that its next transaction reaches a document faster.

pub(crate) mod board;
pub(crate) mod document_cache;
pub(crate) mod handoff;
pub(crate) mod turns;
