//! Why the command failed: one line and an exit code.

use std::process::ExitCode;

use serde_json::json;
use txn_bank::BankError;
use txn_core::ErrorKind;
use txn_core::store::{StoreError, StoreErrorKind};

/// Exit codes that scripts can trust; documented in the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done = 0,
    Refused = 1,
    Found = 3,
    Unavailable = 4,
    Unknown = 5,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// A failure of the command.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    message: String,
}

impl Failure {
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self { exit: Exit::Refused, message: message.into() }
    }

    pub(crate) fn misconfigured(message: impl Into<String>) -> Self {
        Self { exit: Exit::Unavailable, message: message.into() }
    }

    pub(crate) fn unknown(message: impl Into<String>) -> Self {
        Self { exit: Exit::Unknown, message: message.into() }
    }

    pub(crate) fn store(error: StoreError) -> Self {
        BankError::Store(error).into()
    }

    /// On one line, whatever the store's words look like.
    pub(crate) fn line(&self) -> String {
        self.message.split(['\r', '\n']).map(str::trim).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        json!({ "error": self.line(), "exit": self.exit as u8 })
    }
}

impl From<BankError> for Failure {
    fn from(error: BankError) -> Self {
        let exit = match &error {
            BankError::Engine(error) => match error.kind() {
                ErrorKind::Invalid | ErrorKind::Exists => Exit::Refused,
                ErrorKind::Unknown => Exit::Unknown,
                ErrorKind::Damaged => Exit::Found,
                _ => Exit::Unavailable,
            },
            BankError::Store(error) => match error.kind {
                StoreErrorKind::Unavailable
                | StoreErrorKind::NotFound
                | StoreErrorKind::Misconfigured
                | StoreErrorKind::Denied => Exit::Unavailable,
                _ => Exit::Unavailable,
            },
            BankError::NotInitialised { .. } => Exit::Unavailable,
            _ => Exit::Refused,
        };
        Self { exit, message: error.to_string() }
    }
}

impl From<txn_core::Error> for Failure {
    fn from(error: txn_core::Error) -> Self {
        BankError::Engine(error).into()
    }
}
