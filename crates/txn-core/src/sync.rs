//! The mutex and the tasks of parts whose threads are tested in chosen schedules.
//!
//! `cargo xtask threads` compiles the unit tests with `--cfg shuttle`. The crate `shuttle` then
//! chooses the next task at each lock and each wait. All other builds use parking_lot and tokio.

#[cfg(all(test, shuttle))]
pub(crate) mod schedules;

#[cfg(all(test, shuttle))]
pub(crate) use schedules::{JoinHandle, Mutex, spawn_on};
#[cfg(not(all(test, shuttle)))]
pub(crate) use threads::{JoinHandle, Mutex, spawn_on};

#[cfg(not(all(test, shuttle)))]
mod threads {
    pub(crate) use parking_lot::Mutex;
    use tokio::runtime::Handle;
    pub(crate) use tokio::task::JoinHandle;
    use tokio_util::task::TaskTracker;

    /// Spawns a task of `tasks` in a runtime.
    pub(crate) fn spawn_on<T: Send + 'static>(
        tasks: &TaskTracker,
        task: impl Future<Output = T> + Send + 'static,
        runtime: &Handle,
    ) -> JoinHandle<T> {
        tasks.spawn_on(task, runtime)
    }
}
