//! Reasons for the early end of an attempt.

use std::fmt;

use crate::engine::wait_reason::WaitReason;
use crate::error::{Error, ErrorKind};
use crate::event::AbortReason;
use txn_store::Key;

/// Why an attempt ends early.
#[derive(Debug)]
pub(crate) enum AttemptError {
    /// The transaction may run another attempt.
    Retry(RetryReason),
    /// The transaction fails with this error.
    Fail(Error),
}

/// Why a transaction has to run another attempt.
#[derive(Clone, Debug)]
pub(crate) enum RetryReason {
    /// An older transaction aborted the attempt.
    Wounded,
    /// Another transaction changed a document that the attempt read.
    Changed(Key),
    /// The attempt exceeded `attempt_timeout`, during this wait if the engine knows one.
    Expired(Option<WaitReason>),
    /// The attempt does not wait for a foreign lock or turn. The lock is that of another
    /// transaction, or the turn that of another process.
    Waited(Key),
    /// Another write came before a write without a record.
    Overtaken(Key),
    /// The transaction could not be merged into a group. The next attempt runs without a group.
    LeftGroup,
}

impl RetryReason {
    /// The document that caused the conflict, if known.
    pub(crate) fn document(&self) -> Option<&Key> {
        match self {
            Self::Changed(key) | Self::Waited(key) | Self::Overtaken(key) => Some(key),
            Self::Expired(Some(WaitReason::Others { key, .. } | WaitReason::Changing(key))) => {
                Some(key)
            }
            Self::Expired(_) | Self::Wounded | Self::LeftGroup => None,
        }
    }
}

impl From<&RetryReason> for AbortReason {
    fn from(reason: &RetryReason) -> Self {
        match reason {
            RetryReason::Wounded => Self::Wounded,
            RetryReason::Changed(_) => Self::Changed,
            RetryReason::Expired(_) => Self::TimedOut,
            RetryReason::Waited(_) => Self::Blocked,
            RetryReason::Overtaken(_) => Self::Overtaken,
            RetryReason::LeftGroup => Self::LeftGroup,
        }
    }
}

impl fmt::Display for RetryReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wounded => f.write_str("an older transaction aborted this attempt"),
            Self::Changed(key) => write!(f, "{key} was changed by another transaction"),
            Self::Expired(None) => f.write_str("the attempt took longer than attempt_timeout"),
            Self::Expired(Some(why)) => {
                write!(
                    f,
                    "the attempt took longer than attempt_timeout: {}",
                    why.clone().into_error()
                )
            }
            Self::Waited(key) => write!(f, "{key} was locked by another transaction"),
            Self::Overtaken(key) => write!(f, "another write to {key} came first"),
            Self::LeftGroup => f.write_str("the transaction could not be merged into its group"),
        }
    }
}

impl RetryReason {
    /// The error for a caller when no further attempt follows.
    pub(crate) fn into_error(self, prefix: &str) -> Error {
        let kind = match &self {
            Self::Expired(Some(WaitReason::Store(_))) => ErrorKind::Unavailable,
            _ => ErrorKind::Conflict,
        };
        let error = Error::new(kind, format!("{prefix}{self}"));
        match self.document() {
            Some(key) => error.at(key),
            None => error,
        }
    }
}

impl fmt::Display for AttemptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry(reason) => reason.fmt(f),
            Self::Fail(error) => error.fmt(f),
        }
    }
}

impl From<Error> for AttemptError {
    fn from(error: Error) -> Self {
        Self::Fail(error)
    }
}

impl AttemptError {
    /// The document that caused the error, if known.
    pub(crate) fn document(&self) -> Option<&Key> {
        match self {
            Self::Retry(reason) => reason.document(),
            Self::Fail(error) => error.document(),
        }
    }

    /// Names the document, if the error names none.
    pub(crate) fn at(self, document: &Key) -> Self {
        match self {
            Self::Fail(error) => Self::Fail(error.at(document)),
            Self::Retry(reason) => Self::Retry(reason),
        }
    }

    /// The error for a caller when no further attempt follows.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Fail(error) => error,
            Self::Retry(reason) => reason.into_error(""),
        }
    }
}
