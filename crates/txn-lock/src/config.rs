//! Settings of a lock service.

use std::time::Duration;

use crate::error::{LockError, Result};
use crate::heartbeat::Heartbeat;

/// Settings of a [`LockService`](crate::LockService). Clock, randomness and the name of the process are those of its
/// domain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockConfig {
    /// How long this process may show no sign of life until others take its locks. It shows one every third of this.
    /// At least 100 ms; default 10 s.
    pub lease: Duration,
    /// The longest pause between two looks at a lock that another process holds; pauses begin at 2 ms and double.
    /// Default 250 ms.
    pub longest_pause: Duration,
    /// Most callers of this process that may wait at once. Default 10,000.
    pub max_waiting: usize,
    /// How often locks of dead instances are looked for, beside those that somebody waits for; `None`: never.
    /// Default 60 s.
    pub reap_interval: Option<Duration>,
    /// Where the heartbeat runs. Default: in a thread of its own.
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
        if self.lease < Duration::from_millis(100) || self.lease > Duration::from_secs(3600) {
            return refuse("the lease is not between 100 ms and an hour");
        }
        if self.longest_pause.is_zero() || self.longest_pause > self.lease {
            return refuse("the longest pause is zero or longer than the lease");
        }
        if self.max_waiting == 0 {
            return refuse("nobody may wait");
        }
        if self.reap_interval.is_some_and(|interval| interval.is_zero()) {
            return refuse("the reap interval is zero");
        }
        Ok(())
    }
}
