//! Settings of a store.

use std::time::Duration;

/// Settings of a [`RedbStore`](crate::RedbStore). The defaults suit a service on one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedbConfig {
    /// How long a request may take, waiting for room in the queue included. Default: 10 s.
    pub request_timeout: Duration,
    /// Bytes of writes that may wait for the writer or be under way in it; further writes wait for
    /// room. A single request that is larger is let through alone. Default: 64 MiB.
    pub queue_bytes: usize,
    /// Bytes of the file that are kept in memory. Default: 256 MiB.
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
    /// The same settings with another request timeout.
    #[must_use]
    pub fn with_request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// The same settings with another bound of the queue, in bytes.
    #[must_use]
    pub fn with_queue_bytes(mut self, bytes: usize) -> Self {
        self.queue_bytes = bytes;
        self
    }

    /// The same settings with another size of the cache, in bytes.
    #[must_use]
    pub fn with_cache_bytes(mut self, bytes: usize) -> Self {
        self.cache_bytes = bytes;
        self
    }
}
