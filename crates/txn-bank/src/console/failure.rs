//! Failures of the command: one line and an exit code.

use std::process::ExitCode;

use txn_bank::BankError;
use txn_cli::StoreFailure;
use txn_core::ErrorKind;
use txn_core::store::StoreErrorKind;
use txn_lock::LockError;
use txn_outbox::OutboxError;
use txn_requests::RequestError;

/// The exit codes of the command, documented in its help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done = 0,
    Refused = 1,
    Found = 3,
    Unavailable = 4,
    Unknown = 5,
    Unwritten = 6,
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

    /// The command was executed, but its result could not be written.
    pub(crate) fn unwritten(exit: Exit, error: &std::io::Error) -> Self {
        let exit = if exit == Exit::Done { Exit::Unwritten } else { exit };
        let message = format!("it was carried out, but its output could not be written: {error}");
        Self { exit, message }
    }

    /// A load without a commit.
    pub(crate) fn idle(why: &str) -> Self {
        Self { exit: Exit::Unavailable, message: format!("no transfer was committed: {why}") }
    }

    /// The message on one line.
    pub(crate) fn line(&self) -> String {
        self.message.split(['\r', '\n']).map(str::trim).collect::<Vec<_>>().join(" ")
    }
}

impl From<BankError> for Failure {
    fn from(error: BankError) -> Self {
        let exit = match &error {
            BankError::Engine(error) => match error.kind() {
                ErrorKind::Invalid | ErrorKind::Exists => Exit::Refused,
                ErrorKind::Unknown => Exit::Unknown,
                ErrorKind::Damaged | ErrorKind::WrongType => Exit::Found,
                _ => Exit::Unavailable,
            },
            BankError::Store(error) => match error.kind {
                StoreErrorKind::Damaged => Exit::Found,
                _ => Exit::Unavailable,
            },
            BankError::Request(error) => match **error {
                RequestError::Busy { .. }
                | RequestError::TooManyScheduled { .. }
                | RequestError::Timeout { .. }
                | RequestError::NewerFormat { .. } => Exit::Unavailable,
                _ => Exit::Refused,
            },
            BankError::Lock(error) => match **error {
                LockError::InvalidName { .. } => Exit::Refused,
                _ => Exit::Unavailable,
            },
            BankError::Outbox(error) => match **error {
                OutboxError::InvalidName { .. }
                | OutboxError::InvalidConfig(_)
                | OutboxError::InvalidHttp(_)
                | OutboxError::InvalidPayload { .. }
                | OutboxError::TooLate { .. }
                | OutboxError::NotFound(_) => Exit::Refused,
                OutboxError::Missing { .. } => Exit::Found,
                _ => Exit::Unavailable,
            },
            BankError::NotInitialised { .. }
            | BankError::NoOwners { .. }
            | BankError::NoStatements { .. } => Exit::Unavailable,
            BankError::StatementDamaged { .. } => Exit::Found,
            _ => Exit::Refused,
        };
        Self { exit, message: error.to_string() }
    }
}

impl From<StoreFailure> for Failure {
    fn from(error: StoreFailure) -> Self {
        let exit = if error.is_damaged() { Exit::Found } else { Exit::Unavailable };
        Self { exit, message: error.to_string() }
    }
}

impl From<txn_core::Error> for Failure {
    fn from(error: txn_core::Error) -> Self {
        BankError::Engine(error).into()
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        BankError::from(error).into()
    }
}
