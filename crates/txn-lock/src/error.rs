//! Why a lock was not granted, or is held no longer.

use std::fmt;
use std::time::Duration;

use txn_core::store::StoreError;

use crate::instance::InstanceError;
use crate::model::{Holder, LockName};

/// Results of the locks.
pub type Result<T, E = LockError> = std::result::Result<T, E>;

/// Why a call did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The lock was not granted in time.
    #[error(transparent)]
    Timeout(Box<Timeout>),
    /// The lock is held no longer: what it protects may be somebody else's by now.
    #[error("the lock {lock} with the token {token} is lost: {why}")]
    Lost {
        /// The lock.
        lock: LockName,
        /// The token that it was held with.
        token: u64,
        /// How it was lost.
        why: Loss,
    },
    /// As many wait for locks in this process as may.
    #[error("{waiting} callers wait for locks already: try again later")]
    Busy {
        /// How many wait.
        waiting: usize,
    },
    /// A category or an id that no lock can have.
    #[error(
        "{what} {text:?} cannot name a lock: use 1 to {most} bytes without control characters{more}"
    )]
    InvalidName {
        /// Which part of the name.
        what: &'static str,
        /// The text, shortened.
        text: String,
        /// Most bytes.
        most: usize,
        /// What else does not go.
        more: &'static str,
    },
    /// Settings that cannot work.
    #[error("these settings cannot work: {0}")]
    InvalidConfig(String),
    /// A document was written by a newer version of this program.
    #[error(
        "{document} has the format {format}, which this version does not know: use the newer one"
    )]
    NewerFormat {
        /// The document.
        document: String,
        /// Its format.
        format: u32,
    },
    /// The service is shut down.
    #[error("the lock service is shut down")]
    Closed,
    /// The engine's own error.
    #[error(transparent)]
    Engine(#[from] txn_core::Error),
    /// The store's own error, while locks were looked through.
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

/// A lock was not granted in time.
#[derive(Debug)]
#[non_exhaustive]
pub struct Timeout {
    /// The lock.
    pub lock: LockName,
    /// How long it was waited for.
    pub waited: Duration,
    /// Who held it when it was last looked at; `None` if it was not seen, or seen free.
    pub holder: Option<Holder>,
    /// What the engine said last, if it could not do its part.
    pub failure: Option<txn_core::Error>,
}

impl fmt::Display for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lock {} was not granted within {:?}: ", self.lock, self.waited)?;
        match (&self.holder, &self.failure) {
            (Some(holder), _) => write!(f, "{holder} holds it"),
            (None, Some(failure)) => write!(f, "{failure}"),
            (None, None) => f.write_str("others were faster"),
        }
    }
}

impl std::error::Error for Timeout {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.failure.as_ref().map(|failure| failure as _)
    }
}

/// How a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// Its lease ran out before it was renewed: the process was paused, or the store did not answer.
    Expired,
    /// Somebody else took it, or broke it.
    Taken,
    /// It was given back by [`LockService::shutdown`](crate::LockService::shutdown).
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
