//! Settings of requests.

use std::time::Duration;

use txn_lock::Heartbeat;
use txn_outbox::Outbox;

use crate::error::{RequestError, Result};

/// Settings of [`Requests`](crate::Requests).
///
/// The domain supplies the clock, the randomness and the name of the process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RequestsConfig {
    /// The maximum number of operations of a request.
    ///
    /// Each step of a JSON patch, each event and each HTTP request counts as one operation.
    /// Default: 1,000.
    pub max_operations: usize,
    /// The maximum size of a request as JSON. Default: 1 MiB.
    ///
    /// The `copy` steps of a request may add the same number of bytes to documents.
    pub max_bytes: usize,
    /// The maximum number of open requests. Further submissions fail.
    ///
    /// Requests before their moment ([`Request::not_before_ms`](crate::Request::not_before_ms)) do
    /// not count.
    /// Each process counts only now and then. Several processes may therefore exceed the limit by a
    /// quarter of the remaining number. Default: 10,000.
    pub max_open: usize,
    /// The maximum number of requests that wait for their moment. Further ones fail.
    ///
    /// Each process counts now and then, at most once per second. Several processes may therefore
    /// exceed the limit. Default: 100,000.
    pub max_scheduled: usize,
    /// The longest time from the submission of a request to its moment. Default: 3,650 days.
    pub max_delay: Duration,
    /// How long a processor keeps its requests without a heartbeat. Default: 10 s.
    pub lease: Duration,
    /// The maximum number of concurrent requests of a processor. Default: 64.
    pub concurrency: usize,
    /// How often a processor polls for requests of other processes.
    ///
    /// Requests of its own process wake the processor at once. Default: 1 s.
    pub poll: Duration,
    /// The maximum number of requests per poll, oldest first. Default: 100.
    pub batch: usize,
    /// The number of failures that quarantines a request. Default: 5.
    pub max_failures: u32,
    /// The number of processor deaths that quarantines a request.
    ///
    /// A death makes the request a suspect. A process executes one suspect at a time, so a second
    /// death blames the right request. With 1, the first death quarantines all requests that the
    /// process executed at this time. Default: 2.
    pub max_deaths: u32,
    /// How often a processor runs the recovery. Default: one minute.
    pub recover_every: Duration,
    /// How long a request must be unchanged before the recovery.
    ///
    /// The wall clock decides. Default: two minutes.
    pub recover_after: Duration,
    /// The longest pause between two polls of a waiting caller. Default: 250 ms.
    pub longest_pause: Duration,
    /// The outbox of the same domain, for events and HTTP requests. Default: none.
    ///
    /// Without an outbox, requests with events or HTTP requests are refused. Processors without an
    /// outbox leave such requests to other processes.
    pub outbox: Option<Outbox>,
    /// The thread of the heartbeat. Default: a thread of its own.
    pub heartbeat: Heartbeat,
}

impl Default for RequestsConfig {
    fn default() -> Self {
        Self {
            max_operations: 1_000,
            max_bytes: 1 << 20,
            max_open: 10_000,
            max_scheduled: 100_000,
            max_delay: Duration::from_secs(3_650 * 86_400),
            lease: Duration::from_secs(10),
            concurrency: 64,
            poll: Duration::from_secs(1),
            batch: 100,
            max_failures: 5,
            max_deaths: 2,
            recover_every: Duration::from_secs(60),
            recover_after: Duration::from_secs(120),
            longest_pause: Duration::from_millis(250),
            outbox: None,
            heartbeat: Heartbeat::default(),
        }
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $field:ident: $type:ty;)*) => {
        impl RequestsConfig {$(
            $(#[$doc])*
            #[must_use]
            pub fn $name(mut self, $field: $type) -> Self {
                self.$field = $field;
                self
            }
        )*}
    };
}

setters! {
    /// Sets [`RequestsConfig::max_operations`].
    with_max_operations: max_operations: usize;
    /// Sets [`RequestsConfig::max_bytes`].
    with_max_bytes: max_bytes: usize;
    /// Sets [`RequestsConfig::max_open`].
    with_max_open: max_open: usize;
    /// Sets [`RequestsConfig::max_scheduled`].
    with_max_scheduled: max_scheduled: usize;
    /// Sets [`RequestsConfig::max_delay`].
    with_max_delay: max_delay: Duration;
    /// Sets [`RequestsConfig::lease`].
    with_lease: lease: Duration;
    /// Sets [`RequestsConfig::concurrency`].
    with_concurrency: concurrency: usize;
    /// Sets [`RequestsConfig::poll`].
    with_poll: poll: Duration;
    /// Sets [`RequestsConfig::batch`].
    with_batch: batch: usize;
    /// Sets [`RequestsConfig::max_failures`].
    with_max_failures: max_failures: u32;
    /// Sets [`RequestsConfig::max_deaths`].
    with_max_deaths: max_deaths: u32;
    /// Sets [`RequestsConfig::recover_every`].
    with_recover_every: recover_every: Duration;
    /// Sets [`RequestsConfig::recover_after`].
    with_recover_after: recover_after: Duration;
    /// Sets [`RequestsConfig::longest_pause`].
    with_longest_pause: longest_pause: Duration;
    /// Sets [`RequestsConfig::outbox`].
    with_outbox: outbox: Option<Outbox>;
    /// Sets [`RequestsConfig::heartbeat`].
    with_heartbeat: heartbeat: Heartbeat;
}

impl RequestsConfig {
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |why| Err(RequestError::InvalidConfig(why));
        let Self { max_operations, max_bytes, max_open, max_scheduled, .. } = *self;
        let counts =
            [max_operations, max_bytes, max_open, max_scheduled, self.concurrency, self.batch];
        if counts.contains(&0) || self.max_failures == 0 || self.max_deaths == 0 {
            return refuse("a bound is zero");
        }
        if self.lease < Duration::from_millis(100) || self.lease > Duration::from_secs(3600) {
            return refuse("the lease is not between 100 ms and an hour");
        }
        let pauses = [self.poll, self.recover_every, self.longest_pause, self.max_delay];
        if pauses.contains(&Duration::ZERO) {
            return refuse("a pause is zero");
        }
        Ok(())
    }
}
