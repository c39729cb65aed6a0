//! The thread of an instance's heartbeat.

use std::sync::LazyLock;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

/// The thread in which a process writes its heartbeat.
///
/// A task of the application's runtime does not run while a handler or a caller blocks the threads
/// of that runtime. Other processes would then take over the locks of a process that still works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Heartbeat {
    /// A thread of this library, one for the whole process.
    ///
    /// A process keeps its locks while work blocks the threads of the application. The heartbeat
    /// calls the observer, the store and the clock of the domain in this thread, so they must not
    /// block. The heartbeat ends with the runtime that opened the service, even if that runtime is
    /// dropped without a shutdown.
    #[default]
    OwnThread,
    /// The runtime that opens the service. Saves the thread.
    ///
    /// A lock is lost if this runtime rests or is blocked for one lease. Simulations and tests that
    /// pause a runtime rely on this loss.
    CallersRuntime,
}

/// The runtime of [`Heartbeat::OwnThread`]. Lives until the end of the process.
static OWN_THREAD: LazyLock<Option<Runtime>> = LazyLock::new(|| {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("txn-heartbeat")
        .enable_all()
        .build();
    runtime
        .inspect_err(|error| {
            tracing::warn!(%error, "no thread for the heartbeat: it runs in the runtime of the application");
        })
        .ok()
});

impl Heartbeat {
    /// Spawns a task that runs until the caller's runtime ends.
    ///
    /// With [`Heartbeat::OwnThread`] blocked threads of the application do not delay the task.
    pub fn spawn(self, tasks: &TaskTracker, task: impl Future<Output = ()> + Send + 'static) {
        let (Self::OwnThread, Some(runtime)) = (self, &*OWN_THREAD) else {
            drop(tasks.spawn(task));
            return;
        };
        // A runtime that has ended does no more work, so the heartbeat of its process must end,
        // too.
        let (mut alive, gone) = oneshot::channel::<()>();
        tasks.spawn(async move { alive.closed().await });
        let task = async {
            tokio::select! {
                () = task => {}
                _ = gone => {}
            }
        };
        drop(tasks.spawn_on(task, runtime.handle()));
    }
}
