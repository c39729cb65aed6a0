//! The tasks of a domain, and its end.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Whatever runs for a domain, until it is shut down.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    tasks: TaskTracker,
    /// Cancelled when the domain begins to shut down.
    closing: CancellationToken,
    /// The runtime that the domain was opened in, if it was one.
    runtime: Option<Handle>,
    /// Something committed was left to the janitor.
    left_over: AtomicBool,
}

impl Lifecycle {
    pub(crate) fn new(tasks: TaskTracker) -> Self {
        let (closing, left_over) = (CancellationToken::new(), AtomicBool::new(false));
        Self { tasks, closing, runtime: Handle::try_current().ok(), left_over }
    }

    /// Spawns a task that a shutdown waits for, also after it has begun.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.tasks.spawn(task)
    }

    /// Spawns a task for a caller that need not be in a runtime: then it is that of the domain, if there is one.
    pub(crate) fn spawn_from_anywhere(&self, task: impl Future<Output = ()> + Send + 'static) {
        let here = Handle::try_current().ok();
        if let Some(runtime) = here.as_ref().or(self.runtime.as_ref()) {
            self.tasks.spawn_on(task, runtime);
        }
    }

    /// Spawns a task in the runtime of whoever it is for.
    pub(crate) fn spawn_on(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
        runtime: &Handle,
    ) {
        self.tasks.spawn_on(task, runtime);
    }

    /// As long as it is kept, a shutdown waits.
    pub(crate) fn running(&self) -> TaskTrackerToken {
        self.tasks.token()
    }

    /// Cancelled when the domain begins to shut down.
    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// Begins to shut down.
    pub(crate) fn close(&self) {
        self.closing.cancel();
        self.tasks.close();
    }

    /// Waits until every task has ended, behind [`Self::close`].
    pub(crate) async fn ended(&self) {
        self.tasks.wait().await;
    }

    /// Notes that something committed is left to the janitor.
    pub(crate) fn leave_over(&self) {
        self.left_over.store(true, Ordering::Release);
    }

    /// Whether anything committed was left to the janitor.
    pub(crate) fn has_left_over(&self) -> bool {
        self.left_over.load(Ordering::Acquire)
    }
}
