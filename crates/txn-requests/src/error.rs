//! Why a call did not do what was asked.

use std::time::Duration;

use txn_core::store::StoreError;
use txn_lock::instance::InstanceError;
use txn_outbox::OutboxError;

use crate::model::State;
use crate::refusal::Refusal;

/// Results of requests.
pub type Result<T, E = RequestError> = std::result::Result<T, E>;

/// Why a call did not do what was asked. Unless it is [`RequestError::Engine`] of the kind `Unknown`, nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The request can never be carried out.
    #[error("the request is invalid: {0}")]
    Invalid(String),
    /// An id that no request can have.
    #[error("{0:?} cannot be the id of a request: use 1 to 256 bytes without control characters")]
    InvalidId(String),
    /// Settings that cannot work.
    #[error("these settings cannot work: {0}")]
    InvalidConfig(&'static str),
    /// Another request has this id.
    #[error("another request was submitted as {0:?}: use a new id")]
    IdReused(String),
    /// One of its operations cannot be carried out as things stand.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// As many requests are open as may.
    #[error("about {open} requests are open, at most {most} may be: try again later")]
    Busy {
        /// How many there are, about.
        open: usize,
        /// How many there may be.
        most: usize,
    },
    /// There is no such request.
    #[error("there is no request {0:?}")]
    NotFound(String),
    /// A request in this state cannot be treated so.
    #[error("the request {id:?} is {state}: it cannot be {wanted}")]
    WrongState {
        /// The request.
        id: String,
        /// Where it stands.
        state: State,
        /// What was asked for.
        wanted: &'static str,
    },
    /// It was reversed already.
    #[error("the request {id:?} is reversed already, by {by:?}")]
    AlreadyReversed {
        /// The request.
        id: String,
        /// The one that reverses it.
        by: String,
    },
    /// It was not decided in time.
    #[error("the request {id:?} was not decided within {waited:?}: it is {state}")]
    Timeout {
        /// The request.
        id: String,
        /// How long it was waited for.
        waited: Duration,
        /// Where it stood when it was last looked at.
        state: State,
    },
    /// A stored request was written by a newer version of this program.
    #[error(
        "the request {id:?} has the format {format}, which this version does not know: use the newer one"
    )]
    NewerFormat {
        /// The request.
        id: String,
        /// Its format.
        format: u32,
    },
    /// It has events or HTTP requests, and nothing here could emit them.
    #[error(
        "the request has events or HTTP requests, and these requests have no outbox: give one with `RequestsConfig::with_outbox`"
    )]
    NoOutbox,
    /// The outbox did not take its events or HTTP requests.
    #[error(transparent)]
    Outbox(Box<OutboxError>),
    /// What accompanies the request was refused.
    #[error("what accompanies the request was refused: {0}")]
    Companion(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The engine's own error.
    #[error(transparent)]
    Engine(#[from] txn_core::Error),
    /// The store's own error, while requests were looked through.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<OutboxError> for RequestError {
    fn from(error: OutboxError) -> Self {
        match error {
            OutboxError::Engine(error) => Self::Engine(error),
            OutboxError::Store(error) => Self::Store(error),
            error => Self::Outbox(Box::new(error)),
        }
    }
}

impl From<InstanceError> for RequestError {
    fn from(error: InstanceError) -> Self {
        match error {
            InstanceError::Store(error) => Self::Store(error),
            InstanceError::Engine(error) => Self::Engine(error),
            other => Self::Invalid(other.to_string()),
        }
    }
}
