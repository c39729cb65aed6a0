//! The store's own thread, which carries every request.
//!
//! A task drives an HTTP connection. On a caller's runtime that task would stop while the runtime
//! rests between two `block_on`, and would end with the runtime. Requests of other callers that
//! share the connection would stop, too.

use std::fmt;

use futures::FutureExt;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;
use txn_store::{StoreError, StoreErrorKind};

/// The number of threads.
///
/// Request batching sends few requests, and parsing stays on the caller's threads. So one thread
/// carries more requests than a cluster answers. With a second thread, each timer of a request
/// wakes the other thread, which cost a lone transaction 3 to 6 % of its time.
///
/// A single request costs about 40 µs more than on the caller's runtime. With 63 concurrent
/// requests the cost is not measurable.
const THREADS: usize = 1;

/// The number of threads for DNS requests, which block.
const LOOKUPS: usize = 8;

pub(crate) struct Driver {
    /// `None` only during the drop.
    runtime: Option<Runtime>,
    handle: Handle,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Driver")
    }
}

/// The task of a request panicked.
#[derive(Debug)]
pub(crate) struct Panicked;

impl Driver {
    pub(crate) fn new() -> Result<Self, StoreError> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(THREADS).max_blocking_threads(LOOKUPS).thread_name("txn-es");
        let runtime = builder.enable_all().build().map_err(|error| {
            let text = format!("the thread of the store cannot be started: {error}");
            StoreError::new(StoreErrorKind::Unavailable, text)
        })?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Runs a future on the store's thread. Dropping the returned future drops that one, too.
    pub(crate) async fn run<F>(&self, future: F) -> Result<F::Output, Panicked>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let task = AbortOnDropHandle::new(self.handle.spawn(future.in_current_span()));
        task.map(|result| {
            result.map_err(|error| {
                tracing::error!(%error, "a request panicked");
                Panicked
            })
        })
        .await
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Does not block, because the last handle of a store may be dropped inside a runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
