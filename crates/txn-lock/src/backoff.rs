//! Pauses between two polls.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use txn_core::clock::Entropy;

/// Bounds the pauses, so that their sums cannot overflow. Longer pauses never end in practice.
const LONGEST: Duration = Duration::from_secs(1 << 32);

/// Pauses that double from `first` to `cap`, with jitter.
///
/// The jitter covers the upper half of each pause.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    waits: Option<ExponentialBackoff>,
}

impl Backoff {
    /// Starts a series of pauses from `first` to `cap`.
    #[must_use]
    pub fn new(first: Duration, cap: Duration) -> Self {
        Self { first: first.min(cap), cap, waits: None }
    }

    /// Returns the next pause.
    pub fn next(&mut self, entropy: &dyn Entropy) -> Duration {
        let cap = self.cap.min(LONGEST);
        let first = self.first.min(cap);
        // The jitter adds up to the same delay again.
        let build = || {
            ExponentialBuilder::new()
                .with_min_delay(first / 2)
                .with_max_delay(cap / 2)
                .with_jitter()
                .with_jitter_seed(entropy.next_u64())
                .without_max_times()
                .build()
        };
        self.waits.get_or_insert_with(build).next().unwrap_or(cap)
    }
}

#[cfg(test)]
mod tests {
    use txn_core::clock::SystemEntropy;

    use super::*;

    #[test]
    fn pauses_double_up_to_the_cap_with_jitter() {
        let ms = Duration::from_millis;
        for _ in 0..100 {
            let mut backoff = Backoff::new(ms(2), ms(10));
            for whole in [2, 4, 8, 10, 10, 10] {
                let wait = backoff.next(&SystemEntropy);
                let rounded = ms(whole) + Duration::from_micros(1);
                assert!((ms(whole) / 2..=rounded).contains(&wait), "{wait:?} of {whole} ms");
            }
        }
        assert!(
            Backoff::new(ms(10), ms(2)).next(&SystemEntropy) <= ms(2) + Duration::from_micros(1)
        );
        assert!(Backoff::new(Duration::MAX, Duration::MAX).next(&SystemEntropy) >= LONGEST / 2);
    }
}
