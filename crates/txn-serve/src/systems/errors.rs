//! Errors of the systems as problems.

use serde_json::json;
use txn_core::Error;
use txn_lock::LockError;
use txn_outbox::OutboxError;
use txn_requests::{RequestError, Why};

use crate::http::problem::{Code, Problem};

impl From<LockError> for Problem {
    fn from(error: LockError) -> Self {
        let code = match &error {
            LockError::Timeout(_) => Code::Held,
            LockError::Lost { .. } => Code::Lost,
            LockError::Busy { .. } => Code::Overloaded,
            LockError::InvalidName { .. } | LockError::InvalidConfig(_) => Code::Invalid,
            LockError::Closed => Code::Closing,
            LockError::NewerFormat { .. } => Code::Misconfigured,
            LockError::Engine(_) | LockError::Store(_) => Code::Damaged,
            // An error of a later version: no client may repeat the request.
            _ => Code::Damaged,
        };
        match error {
            LockError::Engine(error) => error.into(),
            LockError::Store(error) => Error::from(error).into(),
            LockError::Timeout(timeout) => {
                let holder = timeout.holder.as_ref();
                let holder = holder.map(|it| json!({ "name": it.name, "since_ms": it.since_ms }));
                Self::new(code, timeout.to_string()).with("holder", holder.unwrap_or_default())
            }
            error => Self::new(code, error.to_string()),
        }
    }
}

impl From<OutboxError> for Problem {
    fn from(error: OutboxError) -> Self {
        let code = match &error {
            OutboxError::InvalidName { .. }
            | OutboxError::InvalidPayload { .. }
            | OutboxError::InvalidHttp(_)
            | OutboxError::TooLate { .. } => Code::Invalid,
            OutboxError::Full { .. } => Code::Overloaded,
            OutboxError::NotFound(_) => Code::NotFound,
            OutboxError::NewerFormat { .. } | OutboxError::InvalidConfig(_) => Code::Misconfigured,
            // An error of a later version, too: no client may repeat the request.
            _ => Code::Damaged,
        };
        match error {
            OutboxError::Engine(error) => error.into(),
            OutboxError::Store(error) => Error::from(error).into(),
            OutboxError::Lock(error) => error.into(),
            error => Self::new(code, error.to_string()),
        }
    }
}

impl From<RequestError> for Problem {
    fn from(error: RequestError) -> Self {
        let code = match &error {
            RequestError::IdReused(_) => Code::KeyReused,
            RequestError::NotFound(_) => Code::NotFound,
            RequestError::WrongState { .. }
            | RequestError::AlreadyReversed { .. }
            | RequestError::Companion(_) => Code::Refused,
            RequestError::Busy { .. } | RequestError::TooManyScheduled { .. } => Code::Overloaded,
            RequestError::NoOutbox => Code::Unsupported,
            RequestError::NewerFormat { .. } | RequestError::InvalidConfig(_) => {
                Code::Misconfigured
            }
            _ => Code::Invalid,
        };
        match error {
            RequestError::Engine(error) => error.into(),
            RequestError::Store(error) => Error::from(error).into(),
            RequestError::Outbox(error) => (*error).into(),
            RequestError::Refused(refusal) => {
                let code = match refusal.why {
                    Why::Exists => Code::Exists,
                    _ => Code::Refused,
                };
                let problem = Self::new(code, refusal.to_string());
                problem.with("refusal", serde_json::to_value(&refusal).unwrap_or_default())
            }
            error => Self::new(code, error.to_string()),
        }
    }
}
