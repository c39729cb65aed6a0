//! Settings of a lock service.

use std::time::Duration;

use crate::error::{LockError, Result};
use crate::holding::heartbeat::Heartbeat;

/// The shortest lease that a lock accepts.
pub(crate) const SHORTEST_LEASE: Duration = Duration::from_millis(100);

/// The longest lease that a lock accepts.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(3_600);

/// Settings of a [`LockService`](crate::LockService).
///
/// The domain supplies the clock, the randomness and the name of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockConfig {
    /// How long this process keeps its locks without a heartbeat.
    ///
    /// The process writes a heartbeat three times per lease. At least 100 ms, at most one hour.
    /// Default: 10 s.
    pub lease: Duration,
    /// The longest pause between two polls of a foreign lock.
    ///
    /// Pauses start at 2 ms and double. Default: 250 ms.
    pub longest_pause: Duration,
    /// The maximum number of waiting callers in this process. Default: 10,000.
    pub max_waiting: usize,
    /// How often this process scans for locks of dead instances.
    ///
    /// Waiting callers detect a dead holder without the scan. With `None` this process never scans.
    /// Default: 60 s.
    pub reap_interval: Option<Duration>,
    /// The thread of the heartbeat. Default: a thread of its own.
    pub heartbeat: Heartbeat,
}

impl Default for LockConfig {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(10),
            longest_pause: Duration::from_millis(250),
            max_waiting: 10_000,
            reap_interval: Some(Duration::from_secs(60)),
            heartbeat: Heartbeat::default(),
        }
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $field:ident: $type:ty;)*) => {
        impl LockConfig {$(
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
    /// Sets [`LockConfig::lease`].
    with_lease: lease: Duration;
    /// Sets [`LockConfig::longest_pause`].
    with_longest_pause: longest_pause: Duration;
    /// Sets [`LockConfig::max_waiting`].
    with_max_waiting: max_waiting: usize;
    /// Sets [`LockConfig::reap_interval`].
    with_reap_interval: reap_interval: Option<Duration>;
    /// Sets [`LockConfig::heartbeat`].
    with_heartbeat: heartbeat: Heartbeat;
}

impl LockConfig {
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |why: &str| Err(LockError::InvalidConfig(why.to_owned()));
        if !(SHORTEST_LEASE..=LONGEST_LEASE).contains(&self.lease) {
            return refuse("the lease is not between 100 ms and an hour");
        }
        if self.longest_pause.is_zero() || self.longest_pause > self.lease {
            return refuse("the longest pause is zero or longer than the lease");
        }
        if self.max_waiting == 0 {
            return refuse("max_waiting is 0");
        }
        if self.reap_interval.is_some_and(|interval| interval.is_zero()) {
            return refuse("the reap interval is zero");
        }
        Ok(())
    }
}
