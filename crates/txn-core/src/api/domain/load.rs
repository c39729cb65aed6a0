//! The present load of a process, for metrics.

use crate::api::domain::Domain;

/// The present load of a domain in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Load {
    /// The number of running transactions, without nested ones and those of
    /// [`Domain::begin`].
    pub running: usize,
    /// The number of transactions that wait for a permit
    /// ([`Config::with_max_concurrent_transactions`](crate::Config::with_max_concurrent_transactions)).
    pub waiting: usize,
    /// The number of running transactions that wait for a group.
    pub queued: usize,
    /// The number of requests that request batching sent. The count begins when the domain is
    /// opened.
    pub requests: u64,
    /// The number of operations in these requests.
    pub operations: u64,
}

impl Domain {
    /// Returns the present load of the domain in this process. Sends no request.
    #[must_use]
    pub fn current_load(&self) -> Load {
        let engine = &self.engine;
        Load {
            running: engine.hot.admission.running(),
            waiting: engine.hot.admission.waiting(),
            queued: self.groups.as_ref().map_or(0, |groups| groups.waiting()),
            requests: engine.traffic.requests(),
            operations: engine.traffic.operations(),
        }
    }
}
