//! Errors of requests.

use std::time::Duration;

use txn_core::store::StoreError;
use txn_lock::instance::InstanceError;
use txn_outbox::OutboxError;

use crate::contents::refusal::Refusal;
use crate::model::State;

/// The result of an operation on requests.
pub type Result<T, E = RequestError> = std::result::Result<T, E>;

/// The reason why a call failed.
///
/// A failed call changed nothing, except for a [`RequestError::Engine`] of the kind `Unknown`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The request can never be executed.
    #[error("the request is invalid: {0}")]
    Invalid(String),
    /// The id is not valid.
    #[error("{0:?} cannot be the id of a request: use 1 to 256 bytes without control characters")]
    InvalidId(String),
    /// The settings are not valid.
    #[error("these settings cannot work: {0}")]
    InvalidConfig(&'static str),
    /// Another request has this id.
    #[error("another request was submitted as {0:?}: use a new id")]
    IdReused(String),
    /// An operation of the request was refused.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// The number of open requests has reached its limit.
    #[error("about {open} requests are open, at most {most} are allowed: try again later")]
    Busy {
        /// The approximate number of open requests.
        open: usize,
        /// The limit.
        most: usize,
    },
    /// Too many requests wait for their moment. The number of such requests has reached its limit.
    #[error(
        "about {waiting} requests wait for their moment, at most {most} are allowed: try again later"
    )]
    TooManyScheduled {
        /// The approximate number of waiting requests.
        waiting: usize,
        /// The limit.
        most: usize,
    },
    /// No request has this id.
    #[error("there is no request {0:?}")]
    NotFound(String),
    /// The call is not possible in the current state of the request.
    #[error("the request {id:?} is {state}: it cannot be {wanted}")]
    WrongState {
        /// The id of the request.
        id: String,
        /// The state of the request.
        state: State,
        /// The requested change.
        wanted: &'static str,
    },
    /// The request is already reversed.
    #[error("the request {id:?} is reversed already, by {by:?}")]
    AlreadyReversed {
        /// The id of the request.
        id: String,
        /// The id of its reversal.
        by: String,
    },
    /// The request was not decided within the timeout.
    #[error("the request {id:?} was not decided within {waited:?}: it is {state}")]
    Timeout {
        /// The id of the request.
        id: String,
        /// How long the caller waited.
        waited: Duration,
        /// The last observed state.
        state: State,
    },
    /// A newer version of this program wrote the stored request.
    #[error(
        "the request {id:?} has the format {format}, which this version does not know: use the newer one"
    )]
    NewerFormat {
        /// The id of the request.
        id: String,
        /// The format number of the request.
        format: u32,
    },
    /// The request has events or HTTP requests, and [`Requests`](crate::Requests) has no outbox.
    #[error(
        "the request has events or HTTP requests, and these requests have no outbox: give one with `RequestsConfig::with_outbox`"
    )]
    NoOutbox,
    /// The outbox refused an event or an HTTP request.
    #[error(transparent)]
    Outbox(Box<OutboxError>),
    /// The [`Companion`](crate::Companion) refused the request.
    #[error("the companion refused the request: {0}")]
    Companion(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// An error of the engine.
    #[error(transparent)]
    Engine(#[from] txn_core::Error),
    /// An error of the store during a scan of the requests.
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
