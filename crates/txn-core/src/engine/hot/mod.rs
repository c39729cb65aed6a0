//! Hot documents: what a process keeps in memory so that its next transaction reaches a document
//! faster.

pub(crate) mod admission;
pub(crate) mod board;
pub(crate) mod document_cache;
pub(crate) mod handoff;
pub(crate) mod turns;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::config::Config;
use crate::store::{Key, Limits};

use admission::Admission;
use board::Board;
use document_cache::DocumentCache;
use handoff::HandoffTable;

/// The memory of a process of hot documents.
pub(crate) struct Hot {
    /// Whether transactions are merged into groups.
    pub(crate) has_groups: bool,
    /// The bound on transactions that run at once.
    pub(crate) admission: Admission,
    /// Documents that this process read or committed lately.
    pub(crate) cache: DocumentCache,
    /// Documents that this process committed and did not apply.
    pub(crate) handoffs: HandoffTable,
    /// The order between processes.
    pub(crate) board: Arc<Board>,
    /// The transactions that wait for a group, if there are groups.
    pub(crate) member_queue: OnceLock<Box<dyn MemberQueue>>,
}

impl fmt::Debug for Hot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hot").field("board", &self.board).finish_non_exhaustive()
    }
}

impl Hot {
    pub(crate) fn new(config: &Config, limits: &Limits) -> Self {
        let has_groups = config.groups.unwrap_or(limits.merges_transactions);
        let node = config.entropy.next_u64();
        Self {
            has_groups,
            admission: Admission::new(config.max_running),
            cache: DocumentCache::new(has_groups.then_some(config.transaction_limit)),
            handoffs: HandoffTable::default(),
            board: Arc::new(Board::new(node, has_groups || limits.shares_requests)),
            member_queue: OnceLock::new(),
        }
    }
}

/// The transactions of this process that wait to be composed into groups.
pub(crate) trait MemberQueue: Send + Sync {
    /// Has those composed whose documents are free, and whose turn it is.
    fn call(&self);

    /// The documents of those that write.
    fn documents(&self) -> BTreeSet<Key>;
}
