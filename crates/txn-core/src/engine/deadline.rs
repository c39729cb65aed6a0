//! Deadlines of waits, for transactions, attempts and calls.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::clock::Clock;
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::live_attempts::AttemptHandle;
use crate::engine::wait_reason::WaitReason;
use crate::error::Error;

/// The time limit of a wait.
#[derive(Clone, Debug)]
pub(crate) struct Deadline {
    /// The monotonic time after which the call fails.
    until: Duration,
    /// The attempt that waits. Its limit, a wound, an expiry or a cancellation ends the wait.
    handle: Option<Arc<AttemptHandle>>,
}

impl Deadline {
    pub(crate) fn until(until: Duration) -> Self {
        Self { until, handle: None }
    }

    /// The same deadline, but at most this monotonic time.
    pub(crate) fn at_most(&self, until: Duration) -> Self {
        Self { until: self.until.min(until), ..self.clone() }
    }

    pub(crate) fn of_attempt(until: Duration, handle: Arc<AttemptHandle>) -> Self {
        Self { until, handle: Some(handle) }
    }

    /// Excludes a wait without locks from the time of the attempt.
    pub(crate) fn exclude_wait(&self, waited: Duration) {
        if let Some(handle) = &self.handle {
            handle.exclude_wait(waited);
        }
    }

    /// Returns the time left for a wait.
    ///
    /// Fails if no time is left, or if the attempt was wounded, expired or cancelled.
    pub(crate) fn left(
        &self,
        clock: &dyn Clock,
        reason: &WaitReason,
    ) -> Result<Duration, AttemptError> {
        if let Some(handle) = &self.handle {
            if handle.expired.load(Ordering::Acquire) {
                return Err(AttemptError::Retry(RetryReason::Expired(Some(reason.clone()))));
            }
            if handle.cancelled.load(Ordering::Acquire) {
                return Err(AttemptError::Fail(Error::unavailable(
                    "the transaction was cancelled",
                )));
            }
            if handle.wounded.load(Ordering::Acquire) {
                return Err(AttemptError::Retry(RetryReason::Wounded));
            }
        }
        let now = clock.monotonic();
        if now >= self.until {
            return Err(AttemptError::Fail(reason.clone().into_error()));
        }
        match self.handle.as_ref().map(|handle| handle.limit()) {
            Some(until) if now >= until => {
                Err(AttemptError::Retry(RetryReason::Expired(Some(reason.clone()))))
            }
            Some(until) => Ok(until.min(self.until) - now),
            None => Ok(self.until - now),
        }
    }

    /// Waits, or fails if no time is left.
    pub(crate) async fn pause(
        &self,
        clock: &dyn Clock,
        wait: Duration,
        reason: WaitReason,
    ) -> Result<(), AttemptError> {
        let left = self.left(clock, &reason)?;
        let sleep = clock.sleep(wait.min(left));
        match &self.handle {
            Some(handle) => tokio::select! {
                biased;
                () = sleep => {}
                () = handle.notify.notified() => {}
            },
            None => sleep.await,
        }
        Ok(())
    }
}
