//! Errors of locks: a lock was not granted, or was lost.

use std::fmt;
use std::time::Duration;

use txn_core::store::StoreError;

use crate::instance::InstanceError;
use crate::records::model::{Holder, LockName};

/// The result of a lock operation.
pub type Result<T, E = LockError> = std::result::Result<T, E>;

/// The reason why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The lock was not granted within the timeout.
    #[error(transparent)]
    Timeout(Box<Timeout>),
    /// The lock was lost: another process may already hold it.
    #[error("the lock {lock} with the token {token} is lost: {why}")]
    Lost {
        /// The name of the lock.
        lock: LockName,
        /// The fencing token of the lost grant.
        token: u64,
        /// The cause of the loss.
        why: Loss,
    },
    /// The number of waiting callers in this process has reached its limit.
    #[error("{waiting} callers wait for locks already: try again later")]
    Busy {
        /// The number of waiting callers.
        waiting: usize,
    },
    /// A category or an id is not valid for a lock.
    #[error(
        "{what} {text:?} cannot name a lock: use 1 to {most} bytes without control characters{more}"
    )]
    InvalidName {
        /// The invalid part of the name.
        what: &'static str,
        /// The invalid text, shortened.
        text: String,
        /// The maximum number of bytes.
        most: usize,
        /// Further forbidden characters, as a part of the error text.
        more: &'static str,
    },
    /// The settings are not valid.
    #[error("these settings cannot work: {0}")]
    InvalidConfig(String),
    /// A newer version of this program wrote the document.
    #[error(
        "{document} has the format {format}, which this version does not know: use the newer one"
    )]
    NewerFormat {
        /// The id of the document.
        document: String,
        /// The format number of the document.
        format: u32,
    },
    /// The service is shut down.
    #[error("the lock service is shut down")]
    Closed,
    /// An error of the engine.
    #[error(transparent)]
    Engine(#[from] txn_core::Error),
    /// An error of the store during a scan of the locks.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<InstanceError> for LockError {
    fn from(error: InstanceError) -> Self {
        match error {
            InstanceError::Engine(error) => Self::Engine(error),
            InstanceError::Store(error) => Self::Store(error),
        }
    }
}

/// The details of a lock request that timed out.
#[derive(Debug)]
#[non_exhaustive]
pub struct Timeout {
    /// The name of the lock.
    pub lock: LockName,
    /// How long the caller waited.
    pub waited: Duration,
    /// The last observed holder. `None` if the lock was not observed, or was free.
    pub holder: Option<Holder>,
    /// The last error of the engine while the caller waited.
    pub failure: Option<txn_core::Error>,
}

impl fmt::Display for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lock {} was not granted within {:?}: ", self.lock, self.waited)?;
        match (&self.holder, &self.failure) {
            (Some(holder), _) => write!(f, "{holder} holds it"),
            (None, Some(failure)) => write!(f, "{failure}"),
            (None, None) => f.write_str("another process took it first"),
        }
    }
}

impl std::error::Error for Timeout {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.failure.as_ref().map(|failure| failure as _)
    }
}

/// The cause of a lost lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The lease expired: a pause of the process, or a silent store.
    Expired,
    /// Another process took the lock over, or broke it.
    Taken,
    /// [`LockService::shutdown`](crate::LockService::shutdown) released the lock.
    Closed,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease ran out before it was renewed",
            Self::Taken => "it was taken over or broken",
            Self::Closed => "the lock service was shut down",
        })
    }
}
