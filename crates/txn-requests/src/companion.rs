//! What an application adds to the transaction of each request.

use std::fmt;

use async_trait::async_trait;
use txn_core::Transaction;

use crate::error::Result;
use crate::request::Request;

/// Accompanies requests: called in the transaction that carries one out, behind its operations. What it writes commits with
/// them, or not at all: events, for instance. It may be called more than once.
#[async_trait]
pub trait Companion: fmt::Debug + Send + Sync + 'static {
    /// Adds to the transaction of a request.
    ///
    /// # Errors
    /// [`RequestError::Engine`](crate::RequestError::Engine) as the engine says: pass it on.
    /// [`RequestError::Refused`](crate::RequestError::Refused) rolls the request back with that reason, as if the operation that it
    /// names were refused.
    /// [`RequestError::Companion`](crate::RequestError::Companion) leaves a submitted request for later, and refuses one that is
    /// executed.
    async fn accompany(&self, tx: &Transaction, request: &Request) -> Result<()>;
}
