//! Why an attempt stops short.

use std::fmt;

use crate::engine::wait_reason::WaitReason;
use crate::error::{Error, ErrorKind};
use crate::store::Key;

/// An attempt stops short.
#[derive(Debug)]
pub(crate) enum AttemptError {
    /// The transaction may try again.
    Retry(RetryReason),
    /// It may not.
    Fail(Error),
}

/// Why an attempt has to start again.
#[derive(Clone, Debug)]
pub(crate) enum RetryReason {
    /// An older transaction aborted it.
    Wounded,
    /// A document that it read was changed.
    Changed(Key),
    /// It took longer than the transaction limit, and waited for this in the end, if the engine knows.
    Expired(Option<WaitReason>),
    /// A read-only transaction met a lock and had to wait.
    Waited(Key),
    /// A write without a record was overtaken.
    Overtaken(Key),
    /// It could not be composed with others, and runs by itself.
    LeftGroup,
}

impl RetryReason {
    /// The document that was in the way.
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

impl fmt::Display for RetryReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wounded => f.write_str("an older transaction aborted this attempt"),
            Self::Changed(key) => write!(f, "{key} was changed by another transaction"),
            Self::Expired(None) => {
                f.write_str("the attempt took longer than the transaction limit")
            }
            Self::Expired(Some(why)) => {
                write!(
                    f,
                    "the attempt took longer than the transaction limit: {}",
                    why.clone().into_error()
                )
            }
            Self::Waited(key) => write!(f, "{key} was locked by another transaction"),
            Self::Overtaken(key) => write!(f, "another write to {key} came first"),
            Self::LeftGroup => f.write_str("it could not be composed with others"),
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
    /// The document that was in the way.
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
