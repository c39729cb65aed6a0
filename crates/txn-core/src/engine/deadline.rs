//! How long anything may wait, and what it waits for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use txn_protocol::tid::Tid;

use crate::clock::Clock;
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::lock_queue::AttemptHandle;
use crate::error::{Error, ErrorKind};
use crate::store::Key;

/// What a wait is for.
#[derive(Clone, Debug)]
pub(crate) enum WaitReason {
    /// The store does not answer, or refuses for the moment.
    Store(String),
    /// Another transaction is entitled to go first.
    Others {
        /// The document.
        key: Key,
        /// Who holds it.
        holder: Tid,
    },
    /// Others write the document again and again.
    Changing(Key),
}

impl WaitReason {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Store(why) => Error::unavailable(format!(
                "the store did not carry it out before the deadline: {why}"
            )),
            Self::Others { key, holder } => {
                let message = format!(
                    "other transactions held it until the deadline, last the transaction {holder}"
                );
                Error::new(ErrorKind::Conflict, message).at(&key)
            }
            Self::Changing(key) => {
                let message = "others wrote it again and again until the deadline";
                Error::new(ErrorKind::Conflict, message).at(&key)
            }
        }
    }
}

/// How long something may go on.
#[derive(Clone, Debug)]
pub(crate) struct Deadline {
    /// Give up with an error at this monotonic time.
    until: Duration,
    /// Start again at this monotonic time.
    attempt_until: Option<Duration>,
    /// The attempt that it is of: the wait ends when that is wounded or cancelled.
    handle: Option<Arc<AttemptHandle>>,
}

impl Deadline {
    pub(crate) fn until(until: Duration) -> Self {
        Self { until, attempt_until: None, handle: None }
    }

    /// The same deadline, but not beyond this monotonic time.
    pub(crate) fn at_most(&self, until: Duration) -> Self {
        Self { until: self.until.min(until), ..self.clone() }
    }

    pub(crate) fn of_attempt(
        until: Duration,
        attempt_until: Duration,
        handle: Arc<AttemptHandle>,
    ) -> Self {
        Self { until, attempt_until: Some(attempt_until), handle: Some(handle) }
    }

    /// Fails if no time is left; otherwise the longest wait that is still allowed.
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
        match self.attempt_until {
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
