//! Time and randomness, injected by the caller.
//!
//! The engine has no other source of time and randomness, so a simulation controls both.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

/// The clocks of a process. Clocks decide age and speed, never safety.
#[async_trait]
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Time since the Unix epoch. May jump.
    fn wall(&self) -> Duration;

    /// Time since a fixed moment of this process. Never goes back.
    fn monotonic(&self) -> Duration;

    /// Returns after `duration` of monotonic time. Cancel safe.
    async fn sleep(&self, duration: Duration);
}

/// Random numbers for transaction ids and for the jitter of waits.
///
/// Not suitable for secrets.
pub trait Entropy: fmt::Debug + Send + Sync + 'static {
    /// Sixty-four random bits.
    fn next_u64(&self) -> u64;

    /// Sixty-four bits that no other process draws, not even a copy.
    ///
    /// The operating system provides the bits at each call, because a copied memory has the same
    /// generator state. Tests that must be repeatable override this method.
    fn word(&self) -> u64 {
        getrandom::u64().unwrap_or_else(|_| self.next_u64())
    }
}
