//! Hot documents: process memory that shortens the path to a document.

pub(crate) mod admission;
pub(crate) mod board;
pub(crate) mod document_cache;
pub(crate) mod handoff;
pub(crate) mod lock_queue;
pub(crate) mod turns;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::config::Config;
use txn_store::{Key, Limits};

use admission::Admission;
use board::Board;
use document_cache::DocumentCache;
use handoff::HandoffTable;
use lock_queue::LockQueues;

/// The state of this process for hot documents.
pub(crate) struct Hot {
    /// Whether transactions are merged into groups.
    pub(crate) has_groups: bool,
    /// The bound on concurrent transactions.
    pub(crate) admission: Admission,
    /// Documents that this process read or committed lately.
    pub(crate) cache: DocumentCache,
    /// Documents that this process committed and did not apply.
    pub(crate) handoffs: HandoffTable,
    /// The attempts of this process that wait for locked documents, by age.
    pub(crate) lock_queues: Arc<LockQueues>,
    /// The order of processes at hot documents.
    pub(crate) board: Arc<Board>,
    /// The transactions that wait for a group, if there are groups.
    pub(crate) group_queue: OnceLock<Box<dyn GroupQueue>>,
}

impl fmt::Debug for Hot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hot").field("board", &self.board).finish_non_exhaustive()
    }
}

impl Hot {
    pub(crate) fn new(config: &Config, limits: &Limits) -> Self {
        let has_groups = config.group_commit.unwrap_or(limits.merges_transactions);
        let node = config.entropy.next_u64();
        Self {
            has_groups,
            admission: Admission::new(config.max_concurrent_transactions),
            cache: DocumentCache::new(has_groups.then_some(config.attempt_timeout)),
            handoffs: HandoffTable::default(),
            lock_queues: Arc::default(),
            board: Arc::new(Board::new(node, has_groups || limits.batches_requests)),
            group_queue: OnceLock::new(),
        }
    }

    /// Forms groups of waiting transactions, as [`GroupQueue::start_groups`].
    pub(crate) fn start_groups(&self) {
        if let Some(queue) = self.group_queue.get() {
            queue.start_groups();
        }
    }
}

/// The transactions of this process that wait for a group.
pub(crate) trait GroupQueue: Send + Sync {
    /// Forms groups of waiting transactions whose documents are free.
    ///
    /// No other process may have its turn at these documents.
    fn start_groups(&self);

    /// Selected documents of the waiting transactions that write.
    ///
    /// The oldest transactions count, until they have `enough` documents together. The documents of
    /// one transaction all count.
    fn documents(&self, enough: usize, selects: &dyn Fn(&Key) -> bool) -> BTreeSet<Key>;
}
