//! Hot documents: what a process keeps in memory so that its next transaction reaches a document
//! faster.

pub(crate) mod board;
pub(crate) mod document_cache;
pub(crate) mod handoff;
pub(crate) mod turns;

use std::collections::BTreeSet;

use crate::store::Key;

/// The transactions of this process that wait to be composed into groups.
pub(crate) trait MemberQueue: Send + Sync {
    /// Has those composed whose documents are free, and whose turn it is.
    fn call(&self);

    /// The documents of those that write.
    fn documents(&self) -> BTreeSet<Key>;
}
