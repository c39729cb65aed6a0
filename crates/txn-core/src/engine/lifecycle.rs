//! The tasks of a domain, and its shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::{self, Handle};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::engine::serving_runtime::ServingRuntime;
use crate::sync::{JoinHandle, spawn_on};

#[derive(Debug)]
pub(crate) struct Lifecycle {
    tasks: TaskTracker,
    /// Cancelled when the shutdown begins.
    closing: CancellationToken,
    /// Chooses the runtime of each task.
    serving: Arc<ServingRuntime>,
    /// Whether committed work was left to the janitor.
    left_over: AtomicBool,
}

impl Lifecycle {
    pub(crate) fn new(tasks: TaskTracker, serving: Arc<ServingRuntime>) -> Self {
        let (closing, left_over) = (CancellationToken::new(), AtomicBool::new(false));
        Self { tasks, closing, serving, left_over }
    }

    /// Spawns a task that a shutdown waits for, even after its start.
    ///
    /// # Panics
    /// If neither the caller nor the domain has a runtime.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let runtime = self.serving.for_current().unwrap_or_else(Handle::current);
        spawn_on(&self.tasks, task, &runtime)
    }

    /// Spawns a task for a caller that may have no runtime.
    ///
    /// Does nothing if the domain has no runtime either.
    pub(crate) fn spawn_from_anywhere(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = self.serving.for_current() {
            spawn_on(&self.tasks, task, &runtime);
        }
    }

    /// The runtime for tasks of callers in the runtime `callers`.
    pub(crate) fn served_in(&self, callers: &Handle) -> runtime::Id {
        self.serving.of(callers).id()
    }

    /// Spawns a task for callers in the runtime `callers`.
    pub(crate) fn spawn_for(
        &self,
        callers: &Handle,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        spawn_on(&self.tasks, task, self.serving.of(callers));
    }

    /// Delays the shutdown until the token is dropped.
    pub(crate) fn running(&self) -> TaskTrackerToken {
        self.tasks.token()
    }

    /// Cancelled when the shutdown begins.
    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// Begins the shutdown.
    pub(crate) fn close(&self) {
        self.closing.cancel();
        self.tasks.close();
    }

    /// Waits until every task has ended, after [`Self::close`].
    pub(crate) async fn ended(&self) {
        self.tasks.wait().await;
    }

    /// Notes that committed work is left to the janitor.
    pub(crate) fn leave_over(&self) {
        self.left_over.store(true, Ordering::Release);
    }

    /// Whether committed work was left to the janitor.
    pub(crate) fn has_left_over(&self) -> bool {
        self.left_over.load(Ordering::Acquire)
    }
}
