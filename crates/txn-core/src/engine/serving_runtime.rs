//! Selects a runtime for each task, so that no caller stalls it.
//!
//! A current-thread runtime runs its tasks only within `block_on`. A thread may call a domain from
//! such a runtime and do other work afterwards. Every task in that runtime stops meanwhile: an
//! apply that other transactions wait for, or a request with operations of other callers.
//!
//! So tasks of such a caller run in the runtime of the domain. The `Config` names this runtime, or
//! the domain takes the multi-thread runtime in which it was opened. A multi-thread runtime has
//! threads of its own, and runs the tasks of its callers itself. A heartbeat there depends on no
//! thread of the application.
//!
//! If the domain has no runtime, a task runs in the runtime of its caller, and serves callers of
//! that runtime only. An engine with its own thread was the alternative, but cannot run in the
//! virtual time of a caller's runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio_util::sync::{CancellationToken, DropGuard};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct ServingRuntime {
    own: Option<OwnRuntime>,
    /// The runtime in which the domain was opened, if it was one.
    opened_in: Option<Handle>,
}

#[derive(Debug)]
struct OwnRuntime {
    handle: Handle,
    /// Whether the runtime was shut down. Such a runtime drops every new task.
    has_ended: Arc<AtomicBool>,
    /// Ends the task that watches the runtime.
    _watch: DropGuard,
}

/// Notes that the runtime of its task has ended.
struct NoteEnd(Arc<AtomicBool>);

impl Drop for NoteEnd {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl ServingRuntime {
    /// `configured`: the runtime of the configuration, if it names one.
    pub(crate) fn new(configured: Option<Handle>) -> Self {
        let opened_in = Handle::try_current().ok();
        let own = configured.or_else(|| opened_in.clone().filter(has_threads));
        Self { own: own.map(OwnRuntime::new), opened_in }
    }

    /// The runtime for the tasks of a caller in the runtime `callers`.
    pub(crate) fn of<'a>(&'a self, callers: &'a Handle) -> &'a Handle {
        match has_threads(callers) {
            true => callers,
            false => self.own().unwrap_or(callers),
        }
    }

    /// The runtime for the tasks of the current caller.
    ///
    /// `None` if the caller is in no runtime, and the domain has none either.
    pub(crate) fn for_current(&self) -> Option<Handle> {
        match Handle::try_current() {
            Ok(callers) => Some(self.of(&callers).clone()),
            Err(_) => self.own().or(self.opened_in.as_ref()).cloned(),
        }
    }

    /// The runtime of the domain, while there is one.
    fn own(&self) -> Option<&Handle> {
        let runs = |own: &&OwnRuntime| !own.has_ended.load(Ordering::Acquire);
        self.own.as_ref().filter(runs).map(|own| &own.handle)
    }
}

/// Whether a runtime runs its tasks without a thread within `block_on`.
fn has_threads(runtime: &Handle) -> bool {
    runtime.runtime_flavor() == RuntimeFlavor::MultiThread
}

impl OwnRuntime {
    fn new(handle: Handle) -> Self {
        let has_ended = Arc::new(AtomicBool::new(false));
        let dropped = CancellationToken::new();
        let (noting, until) = (NoteEnd(has_ended.clone()), dropped.clone());
        handle.spawn(async move {
            let _noting = noting;
            until.cancelled().await;
        });
        Self { handle, has_ended, _watch: dropped.drop_guard() }
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn multi_thread() -> Runtime {
        Builder::new_multi_thread().worker_threads(1).build().unwrap()
    }

    fn current_thread() -> Runtime {
        Builder::new_current_thread().build().unwrap()
    }

    fn serves(serving: &ServingRuntime, callers: &Runtime) -> tokio::runtime::Id {
        let current = callers.block_on(async { serving.for_current().unwrap().id() });
        assert_eq!(current, serving.of(callers.handle()).id());
        current
    }

    #[test]
    fn runtime_with_threads_serves_until_it_ends() {
        let (opened_in, callers) = (multi_thread(), current_thread());
        let serving = opened_in.block_on(async { ServingRuntime::new(None) });
        assert_eq!(serves(&serving, &callers), opened_in.handle().id());
        assert_eq!(serving.for_current().unwrap().id(), opened_in.handle().id());
        drop(opened_in);
        assert_eq!(serves(&serving, &callers), callers.handle().id());
    }

    #[test]
    fn runtime_with_threads_serves_its_own_callers() {
        let (opened_in, callers, configured) = (multi_thread(), multi_thread(), multi_thread());
        for configured in [None, Some(configured.handle().clone())] {
            let serving = opened_in.block_on(async { ServingRuntime::new(configured) });
            assert_eq!(serves(&serving, &callers), callers.handle().id());
        }
    }

    #[test]
    fn current_thread_runtime_serves_only_if_configured() {
        let (opened_in, callers) = (current_thread(), current_thread());
        let serving = opened_in.block_on(async { ServingRuntime::new(None) });
        assert_eq!(serves(&serving, &callers), callers.handle().id());
        let serving = ServingRuntime::new(Some(opened_in.handle().clone()));
        assert_eq!(serves(&serving, &callers), opened_in.handle().id());
    }
}
