//! Where the tasks of a domain run, so that no caller can stop driving them.
//!
//! A current-thread runtime drives its tasks only within `block_on`. A thread that calls a domain by a
//! runtime of its own, and does something else afterwards, stops every task in that runtime: an apply
//! that other transactions wait for, or a request that carries operations of other callers.
//!
//! So the tasks run in the runtime of the domain, if it is driven by threads of its own: the one of the
//! `Config`, or the multi-thread runtime in which the domain was opened. Without such a runtime a task
//! runs in the runtime of its caller, and serves callers of that runtime alone. An engine with a thread
//! of its own was the alternative: it cannot run in the virtual time of a caller's runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::{Handle, RuntimeFlavor, TryCurrentError};
use tokio_util::sync::{CancellationToken, DropGuard};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct ServingRuntime {
    own: Option<Own>,
}

#[derive(Debug)]
struct Own {
    handle: Handle,
    /// The runtime was shut down, and drops whatever is spawned there.
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
        let is_driven = |here: &Handle| here.runtime_flavor() == RuntimeFlavor::MultiThread;
        let own = configured.or_else(|| Handle::try_current().ok().filter(is_driven));
        Self { own: own.map(Own::new) }
    }

    /// The runtime of the domain, while there is one.
    pub(crate) fn own(&self) -> Option<&Handle> {
        let runs = |own: &&Own| !own.has_ended.load(Ordering::Acquire);
        self.own.as_ref().filter(runs).map(|own| &own.handle)
    }

    /// The runtime of the domain, or else the one of the caller.
    pub(crate) fn own_or_current(&self) -> Result<Handle, TryCurrentError> {
        self.own().map_or_else(Handle::try_current, |own| Ok(own.clone()))
    }
}

impl Own {
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

    fn id_of(serving: &ServingRuntime) -> Option<tokio::runtime::Id> {
        serving.own().map(Handle::id)
    }

    #[test]
    fn runtime_with_threads_of_its_own_serves_until_it_ends() {
        let (opened_in, other) = (multi_thread(), multi_thread());
        let serving = opened_in.block_on(async { ServingRuntime::new(None) });
        assert_eq!(id_of(&serving), Some(opened_in.handle().id()));
        let from_other = other.block_on(async { serving.own_or_current().unwrap().id() });
        assert_eq!(from_other, opened_in.handle().id());
        drop(opened_in);
        assert_eq!(id_of(&serving), None);
        let from_other = other.block_on(async { serving.own_or_current().unwrap().id() });
        assert_eq!(from_other, other.handle().id(), "the caller's takes its place");
        assert!(serving.own_or_current().is_err());
    }

    #[test]
    fn current_thread_runtime_serves_only_if_configured() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let serving = runtime.block_on(async { ServingRuntime::new(None) });
        assert_eq!(id_of(&serving), None);
        let serving = ServingRuntime::new(Some(runtime.handle().clone()));
        assert_eq!(id_of(&serving), Some(runtime.handle().id()));
    }
}
