//! The limit of queues in work.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Permits for a number of queues in work.
#[derive(Debug)]
pub(crate) struct WorkLimit {
    permits: Arc<Semaphore>,
    waiting: AtomicUsize,
}

impl WorkLimit {
    pub(crate) fn new(most: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(most)), waiting: AtomicUsize::new(0) }
    }

    /// Waits for a permit. The semaphore is never closed. Cancel safe.
    pub(crate) async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        let _waiting = Waiting::of(&self.waiting);
        self.permits.clone().acquire_owned().await.ok()
    }

    /// Whether another queue waits for a permit. A lane then releases its own.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }
}

struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn of(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
