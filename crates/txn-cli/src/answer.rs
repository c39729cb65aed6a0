//! Answers, messages and failures of the command.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::{Value, json};
use txn_cli::{StoreFailure, print, print_json, without_logins};
use txn_core::ErrorKind;
use txn_core::store::{StoreError, StoreErrorKind};
use txn_lock::LockError;
use txn_outbox::OutboxError;
use txn_redb::OpenErrorKind;
use txn_requests::RequestError;
pub(crate) use txn_serve::operator::{Message, Severity};

use crate::args::STORE;

/// The exit codes of the command, documented in its help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Well = 0,
    NotWell = 1,
    CouldNotFindOut = 2,
}

impl Exit {
    pub(crate) fn well_if(well: bool) -> Self {
        if well { Self::Well } else { Self::NotWell }
    }

    /// Whether all is well, if that is known.
    pub(crate) fn is_well(self) -> Option<bool> {
        (self != Self::CouldNotFindOut).then_some(self == Self::Well)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// The answer of a verb, for operators and for programs.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) exit: Exit,
    text: String,
    json: Value,
}

impl Answer {
    pub(crate) fn new(exit: Exit, text: impl Into<String>, json: impl Serialize) -> Self {
        // An answer that cannot be encoded does not exist: all keys are texts.
        let json = serde_json::to_value(json).unwrap_or_default();
        Self { exit, text: text.into(), json }
    }

    pub(crate) fn print(&self, json: bool) -> io::Result<()> {
        match json {
            true => print_json(&self.json),
            false => print(&self.text),
        }
    }
}

/// Whether the output was written. A reader such as `head` closes the pipe when it has seen enough.
pub(crate) fn is_read(written: io::Result<()>) -> Result<bool, Failure> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::unfit(format!("the output could not be written: {error}"))),
    }
}

/// Whether no message needs an operator.
pub(crate) fn is_well(messages: &[Message]) -> bool {
    messages.iter().all(|message| message.severity == Severity::Note)
}

/// The lines of messages.
pub(crate) fn lines<'a>(messages: impl IntoIterator<Item = &'a Message>) -> String {
    messages.into_iter().map(|message| message.line() + "\n").collect()
}

/// A failure of the command.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    code: &'static str,
    message: String,
    remedy: &'static str,
}

const REPAIR: &str = "see docs/failures.md for the damage; `txn rebuild` shows lost parts";
const CHECK: &str =
    "check --store, --domain, the options for servers, and the privileges (`txn roles`)";
const DENIED: &str =
    "check the login (--api-key-file and others) and the privileges (`txn roles COLLECTION`)";
const LIFT: &str = "`txn doctor` shows the request that lifts the block";
const ONE_PROCESS: &str =
    "end the other process, or ask the gateway that has the file (/_txn, /_console)";
const LISTEN: &str = "end the other program on this port, or choose another address by --listen";
const FILE: &str = "check the path, the permissions and the content of the file (docs/gateway.md)";
const AGAIN: &str = "check that the servers answer, then repeat the command";

impl Failure {
    fn new(exit: Exit, code: &'static str, message: String, remedy: &'static str) -> Self {
        Self { exit, code, message, remedy }
    }

    /// The input cannot work.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        let remedy = "see `txn help` for the verb";
        Self::new(Exit::CouldNotFindOut, "invalid_input", message.into(), remedy)
    }

    /// The store or the machine is not fit.
    pub(crate) fn unfit(message: impl Into<String>) -> Self {
        Self::new(Exit::CouldNotFindOut, "misconfigured", message.into(), CHECK)
    }

    /// The gateway cannot listen on its address.
    pub(crate) fn address(listen: SocketAddr, error: &io::Error) -> Self {
        let message = format!("cannot listen on {listen}: {error}");
        Self::new(Exit::CouldNotFindOut, "misconfigured", message, LISTEN)
    }

    /// A file of these options cannot be used.
    pub(crate) fn file(options: &str, error: &io::Error) -> Self {
        let message = format!("{options}: {error}");
        Self::new(Exit::CouldNotFindOut, "misconfigured", message, FILE)
    }

    /// The store gave no answer.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Exit::CouldNotFindOut, "unavailable", message.into(), AGAIN)
    }

    /// The message on one line.
    pub(crate) fn text(&self) -> String {
        self.message.split(['\r', '\n']).map(str::trim).collect::<Vec<_>>().join(" ")
    }

    /// The failure as a finding.
    pub(crate) fn into_message(self) -> Message {
        Message::error(self.code, self.text(), self.remedy)
    }

    /// The message with the remedy, on one line.
    pub(crate) fn line(&self) -> String {
        format!("{}. Do: {}", self.text(), self.remedy)
    }

    /// Prints the failure on standard output, without logins.
    pub(crate) fn print(&self, json: bool) -> io::Result<()> {
        match json {
            true => print_json(&self.json(&without_logins(&self.text(), STORE))),
            false => print(&format!("could not find out: {}", without_logins(&self.line(), STORE))),
        }
    }

    /// The failure for programs. `text`: the message without logins.
    pub(crate) fn json(&self, text: &str) -> Value {
        let well = match self.exit {
            Exit::CouldNotFindOut => Value::Null,
            _ => json!(false),
        };
        json!({
            "well": well,
            "exit": self.exit as u8,
            "messages": [{
                "code": self.code, "severity": "error", "text": text, "remedy": self.remedy,
            }],
        })
    }
}

impl From<txn_core::Error> for Failure {
    fn from(error: txn_core::Error) -> Self {
        let message = error.to_string();
        match error.kind() {
            ErrorKind::Damaged => Self::new(Exit::NotWell, "damaged", message, REPAIR),
            ErrorKind::Invalid | ErrorKind::Exists | ErrorKind::WrongType => Self::invalid(message),
            ErrorKind::Misconfigured => Self::unfit(message),
            ErrorKind::Unknown => {
                let remedy = "ask for the outcome: `txn outcome TID`";
                Self::new(Exit::CouldNotFindOut, "unknown_outcome", message, remedy)
            }
            ErrorKind::Conflict => {
                let remedy = "repeat the command; `txn locks` names the holders";
                Self::new(Exit::CouldNotFindOut, "conflict", message, remedy)
            }
            _ => Self::unavailable(message),
        }
    }
}

impl From<StoreFailure> for Failure {
    fn from(error: StoreFailure) -> Self {
        match error {
            StoreFailure::Store(error) => error.into(),
            error if error.is_damaged() => {
                Self::new(Exit::NotWell, "damaged", error.to_string(), REPAIR)
            }
            StoreFailure::File(error) if matches!(error.kind(), OpenErrorKind::InUse) => {
                Self::new(Exit::CouldNotFindOut, "in_use", error.to_string(), ONE_PROCESS)
            }
            error => Self::unfit(error.to_string()),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(StoreError { kind, message }: StoreError) -> Self {
        match kind {
            StoreErrorKind::Damaged => Self::new(Exit::NotWell, "damaged", message, REPAIR),
            StoreErrorKind::Denied => Self::new(Exit::CouldNotFindOut, "denied", message, DENIED),
            StoreErrorKind::Blocked => Self::new(Exit::CouldNotFindOut, "blocked", message, LIFT),
            StoreErrorKind::Misconfigured | StoreErrorKind::NotFound => Self::unfit(message),
            StoreErrorKind::Unavailable => Self::unavailable(message),
        }
    }
}

impl From<OutboxError> for Failure {
    fn from(error: OutboxError) -> Self {
        match error {
            OutboxError::Engine(error) => error.into(),
            OutboxError::Store(error) => error.into(),
            error @ (OutboxError::NotFound(_) | OutboxError::InvalidName { .. }) => {
                Self::invalid(error.to_string())
            }
            error => Self::unavailable(error.to_string()),
        }
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        match error {
            error @ LockError::InvalidName { .. } => Self::invalid(error.to_string()),
            error => Self::unavailable(error.to_string()),
        }
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Engine(error) => error.into(),
            RequestError::Store(error) => error.into(),
            error @ (RequestError::Refused(_)
            | RequestError::WrongState { .. }
            | RequestError::AlreadyReversed { .. }
            | RequestError::IdReused(_)
            | RequestError::Companion(_)) => {
                let remedy = "read the reason; nothing was changed";
                Self::new(Exit::NotWell, "refused", error.to_string(), remedy)
            }
            error @ (RequestError::Invalid(_)
            | RequestError::InvalidId(_)
            | RequestError::NoOutbox
            | RequestError::NotFound(_)) => Self::invalid(error.to_string()),
            error => Self::unavailable(error.to_string()),
        }
    }
}
