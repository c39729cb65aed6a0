//! Time and randomness, injected: the engine takes both from here and nowhere else, so that a
//! simulation can own them.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

/// Clocks. They decide age and speed, never safety.
#[async_trait]
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Time since the Unix epoch. May jump.
    fn wall(&self) -> Duration;

    /// Time since some fixed moment of this process. Never goes back.
    fn monotonic(&self) -> Duration;

    /// Returns once `duration` of monotonic time has passed. Cancel safe.
    async fn sleep(&self, duration: Duration);
}

/// Random numbers: for the node part of transaction ids and the jitter of waits, not for secrets.
pub trait Entropy: fmt::Debug + Send + Sync + 'static {
    /// Sixty-four random bits.
    fn next_u64(&self) -> u64;

    /// Sixty-four bits that no other process draws, not even one whose memory was copied from this one: from the operating system at
    /// each call. Tests that have to repeat themselves give their own.
    fn word(&self) -> u64 {
        getrandom::u64().unwrap_or_else(|_| self.next_u64())
    }
}
