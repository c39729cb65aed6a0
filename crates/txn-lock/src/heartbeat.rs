//! Where the heartbeat of an instance runs: beyond the reach of work that blocks its threads.

use std::sync::LazyLock;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

/// Where a process shows that it lives.
///
/// A task of the application's runtime does not run while a handler or a caller blocks the threads of that runtime, and so the
/// locks of a process that works would be taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Heartbeat {
    /// In a thread of this library, one for the whole process. Work that blocks the application's
    /// threads keeps its locks. The observer, the store and the clock of the domain are called in
    /// that thread, too, and must not block it. It ends with the runtime that opened the service,
    /// even if that is dropped without a shutdown.
    #[default]
    OwnThread,
    /// In the runtime that opens the service. Saves the thread. A lock is lost if that runtime rests, or is blocked, for a
    /// lease; simulations and tests that pause a runtime rely on that.
    CallersRuntime,
}

/// The runtime of [`Heartbeat::OwnThread`]. It lives as long as the process.
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
    /// Spawns a task that must run whatever the application's threads do, until the caller's
    /// runtime is gone.
    pub fn spawn(self, tasks: &TaskTracker, task: impl Future<Output = ()> + Send + 'static) {
        let (Self::OwnThread, Some(runtime)) = (self, &*OWN_THREAD) else {
            drop(tasks.spawn(task));
            return;
        };
        // Nobody works any more in a runtime that is gone, so nothing may show that somebody lives.
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
