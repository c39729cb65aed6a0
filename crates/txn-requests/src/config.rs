//! Settings of requests.

use std::time::Duration;

use txn_lock::Heartbeat;
use txn_outbox::Outbox;

use crate::error::{RequestError, Result};

/// Settings of [`Requests`](crate::Requests). Clock, randomness and the name of the process are those of the domain.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RequestsConfig {
    /// Most operations of a request. Each step of a JSON patch, each event and each HTTP request counts as one. Default 1,000.
    pub max_operations: usize,
    /// Most bytes of a request as JSON, and most bytes that its `copy` steps may add to documents. Default 1 MiB.
    pub max_bytes: usize,
    /// Most requests that may be open; beyond, submissions are refused. Each process counts now and then, so that
    /// several together may pass the bound by a quarter of the room that was left. Default 10,000.
    pub max_open: usize,
    /// How long a processor may show no sign of life until others take its requests over. Default 10 s.
    pub lease: Duration,
    /// How many requests a processor works on at once. Default 64.
    pub concurrency: usize,
    /// How often a processor looks for requests that other processes submitted. Those of its own it begins at once.
    /// Default 1 s.
    pub poll: Duration,
    /// How many requests one look takes, the oldest first. Default 100.
    pub batch: usize,
    /// How often a request may fail before it is set aside. Default 5.
    pub max_failures: u32,
    /// How many processors may die while they carry a request out until it is set aside. A request that one processor died over
    /// is a suspect: a process carries out one suspect at a time, so a request that kills its process is found out by the
    /// second death. With 1 a request is set aside after the first death, and so are all others that the process was carrying
    /// out. Default 2.
    pub max_deaths: u32,
    /// How often a processor looks for requests that need recovery. Default one minute.
    pub recover_every: Duration,
    /// How long a request must have stood unchanged to need recovery, by the wall clock. Default two minutes.
    pub recover_after: Duration,
    /// The longest pause of somebody who waits for a request of another process. Default 250 ms.
    pub longest_pause: Duration,
    /// Where requests emit their events and keep their HTTP requests: an outbox of the same domain. Without one, requests
    /// that have any are refused, and those that others submitted are left to others. Default none.
    pub outbox: Option<Outbox>,
    /// Where the heartbeat runs. Default: in a thread of its own.
    pub heartbeat: Heartbeat,
}

impl Default for RequestsConfig {
    fn default() -> Self {
        Self {
            max_operations: 1_000,
            max_bytes: 1 << 20,
            max_open: 10_000,
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
        let counts =
            [self.max_operations, self.max_bytes, self.max_open, self.concurrency, self.batch];
        if counts.contains(&0) || self.max_failures == 0 || self.max_deaths == 0 {
            return refuse("a bound is zero");
        }
        if self.lease < Duration::from_millis(100) || self.lease > Duration::from_secs(3600) {
            return refuse("the lease is not between 100 ms and an hour");
        }
        if [self.poll, self.recover_every, self.longest_pause].contains(&Duration::ZERO) {
            return refuse("a pause is zero");
        }
        Ok(())
    }
}
