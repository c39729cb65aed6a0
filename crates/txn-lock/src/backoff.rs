//! Waits between two looks.

use std::time::Duration;

use txn_core::clock::Entropy;

/// Waits that double from `first` to `cap`, each jittered over its upper half.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    cap: Duration,
}

impl Backoff {
    /// Waits from `first` to `cap`.
    #[must_use]
    pub fn new(first: Duration, cap: Duration) -> Self {
        Self { next: first.min(cap), cap }
    }

    /// The next wait.
    pub fn next(&mut self, entropy: &dyn Entropy) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(self.cap);
        let half = u64::try_from(whole.as_micros() / 2).unwrap_or(u64::MAX);
        Duration::from_micros(half + entropy.next_u64() % (half + 1))
    }
}
