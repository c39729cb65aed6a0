//! The state that all tasks of a processor share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use txn_core::Domain;
use txn_core::clock::Clock;
use txn_lock::LockService;

use crate::config::ProcessorConfig;
use crate::figures::Counters;
use crate::processing::queue_scheduler::QueueScheduler;
use crate::processing::running::Running;
use crate::processing::shards::Shards;
use crate::processing::topics::Topics;
use crate::processing::work_limit::WorkLimit;
use crate::queue::local_wakeups::Listener;
use crate::queue::source::EventSource;

pub(crate) struct Inner {
    pub(crate) domain: Domain,
    pub(crate) source: Arc<dyn EventSource>,
    pub(crate) config: ProcessorConfig,
    pub(crate) topics: Topics,
    pub(crate) locks: LockService,
    pub(crate) shards: Arc<Shards>,
    pub(crate) listener: Arc<Listener>,
    pub(crate) scheduler: Arc<QueueScheduler>,
    pub(crate) counters: Counters,
    pub(crate) work_limit: WorkLimit,
    /// The number of batches of events that lanes began. The next poll resets it.
    pub(crate) begun: AtomicUsize,
    /// The running handlers.
    pub(crate) running: Arc<Running>,
    /// Allows only one event to run after a start without an end.
    pub(crate) suspects: tokio::sync::Mutex<()>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Processor").field("source", &self.source.name()).finish_non_exhaustive()
    }
}

impl Inner {
    pub(crate) fn clock(&self) -> &dyn Clock {
        self.domain.config().clock()
    }

    /// Counts a batch of events that a lane begins.
    ///
    /// The first batch of a queue that a poll found may be a reason for the next poll.
    pub(crate) fn count_begun(&self, is_polled: bool) {
        self.begun.fetch_add(1, Ordering::AcqRel);
        if is_polled {
            self.listener.wake();
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock().monotonic()
    }
}
