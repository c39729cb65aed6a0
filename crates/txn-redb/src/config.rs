//! Settings of a store.

use std::time::Duration;

/// Settings of a [`RedbStore`](crate::RedbStore). The defaults suit a service on one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedbConfig {
    /// The timeout of a request, including the wait in the queue.
    ///
    /// Default: 10 s.
    pub request_timeout: Duration,
    /// The maximum size of queued and running writes, in bytes.
    ///
    /// Further writes wait for space. A single larger request runs alone. Default: 64 MiB.
    pub queue_bytes: usize,
    /// The size of the cache, in bytes. Default: 256 MiB.
    pub cache_bytes: usize,
}

impl Default for RedbConfig {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(10),
            queue_bytes: 64 << 20,
            cache_bytes: 256 << 20,
        }
    }
}

impl RedbConfig {
    /// Sets [`RedbConfig::request_timeout`].
    #[must_use]
    pub fn with_request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Sets [`RedbConfig::queue_bytes`].
    #[must_use]
    pub fn with_queue_bytes(mut self, bytes: usize) -> Self {
        self.queue_bytes = bytes;
        self
    }

    /// Sets [`RedbConfig::cache_bytes`].
    #[must_use]
    pub fn with_cache_bytes(mut self, bytes: usize) -> Self {
        self.cache_bytes = bytes;
        self
    }
}
