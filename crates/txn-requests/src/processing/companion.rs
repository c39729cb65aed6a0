//! The hook of an application in the transaction of each request.

use std::fmt;

use async_trait::async_trait;
use txn_core::Transaction;

use crate::contents::request::Request;
use crate::error::Result;

/// A hook in the transaction that executes a request.
///
/// The hook runs after the operations of the request. The writes of the hook, for example events,
/// commit together with the operations. The hook may run more than once.
#[async_trait]
pub trait Companion: fmt::Debug + Send + Sync + 'static {
    /// Adds writes to the transaction of a request.
    ///
    /// # Errors
    /// Return an error of the engine as [`RequestError::Engine`](crate::RequestError::Engine).
    /// [`RequestError::Refused`](crate::RequestError::Refused) rolls the request back with this
    /// reason, like a refused operation.
    /// [`RequestError::Companion`](crate::RequestError::Companion) defers a submitted request, and
    /// refuses an executed one.
    async fn accompany(&self, tx: &Transaction, request: &Request) -> Result<()>;
}
