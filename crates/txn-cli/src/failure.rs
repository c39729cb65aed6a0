//! Failures to open a store.

use std::fmt;

use txn_core::store::{StoreError, StoreErrorKind};
use txn_redb::{OpenError, OpenErrorKind};

/// A failure to open a store.
#[derive(Debug)]
pub enum StoreFailure {
    /// The address or the options cannot work.
    Misconfigured(String),
    /// The servers refused, or did not answer.
    Store(StoreError),
    /// The file cannot be opened.
    File(OpenError),
}

impl StoreFailure {
    /// Whether the store is damaged.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        match self {
            Self::Misconfigured(_) => false,
            Self::Store(error) => error.kind == StoreErrorKind::Damaged,
            Self::File(error) => matches!(error.kind(), OpenErrorKind::Damaged),
        }
    }
}

impl fmt::Display for StoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misconfigured(message) => f.write_str(message),
            Self::Store(error) => error.fmt(f),
            Self::File(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StoreFailure {}

impl From<StoreError> for StoreFailure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<OpenError> for StoreFailure {
    fn from(error: OpenError) -> Self {
        Self::File(error)
    }
}
