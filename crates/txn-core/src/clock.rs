//! Time and randomness of the engine, as injected dependencies.
//!
//! The engine takes both from this module only, so that a simulation can control them.

#![expect(clippy::disallowed_methods, reason = "here they come in")]

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use tokio::time::Instant;

pub use txn_protocol::clock::{Clock, Entropy};

/// The wall clock of the system, and the monotonic clock of tokio.
///
/// Tests can pause the clock of tokio.
#[derive(Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { origin: Instant::now() }
    }
}

#[async_trait]
impl Clock for SystemClock {
    fn wall(&self) -> Duration {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// The randomness of the operating system.
#[derive(Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn next_u64(&self) -> u64 {
        // A fresh `RandomState` is keyed by the operating system and a counter.
        use std::hash::{BuildHasher, RandomState};
        RandomState::new().hash_one(Instant::now())
    }
}

/// Waits that double from `first` to `cap`. Each wait is jittered over its upper half.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    cap: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, cap: Duration) -> Self {
        Self { next: first, cap }
    }

    pub(crate) fn next(&mut self, entropy: &dyn Entropy) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(self.cap);
        let half = u64::try_from(whole.as_micros() / 2).unwrap_or(u64::MAX);
        Duration::from_micros(half + entropy.next_u64() % (half + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_to_its_cap_with_jitter() {
        let mut backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(10));
        for whole in [2, 4, 8, 10, 10] {
            let wait = backoff.next(&SystemEntropy);
            assert!(
                wait >= Duration::from_millis(whole) / 2 && wait <= Duration::from_millis(whole)
            );
        }
    }
}
