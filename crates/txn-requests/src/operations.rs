//! Operations in transactions of the caller, without a stored request.

use std::fmt;

use txn_core::{Collection, Domain, Raw, Transaction};

use crate::contents::request::Operation;
use crate::contents::validate;
use crate::error::{RequestError, Result};
use crate::processing::apply::{Handles, Stop, perform};
use crate::processing::handles::OpenHandles;

/// Executes operations in transactions of the caller.
///
/// In contrast to [`Requests`](crate::Requests) nothing is stored: neither the operations nor their
/// reversal.
#[derive(Debug)]
pub struct Operations {
    domain: Domain,
    handles: OpenHandles,
    max_operations: usize,
    max_copied: usize,
}

/// Validated operations, and their open collections.
pub struct Prepared {
    handles: Handles,
    operations: Vec<Operation>,
    max_copied: usize,
}

/// Leaves the operations out of logs, because they have contents of documents.
impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared")
            .field("operations", &self.operations.len())
            .finish_non_exhaustive()
    }
}

impl Operations {
    /// Creates an executor with bounds.
    ///
    /// `max_operations`: the maximum number of operations of one call; each step of a JSON patch
    /// counts as one. `max_copied`: the maximum number of bytes that `copy` steps add.
    #[must_use]
    pub fn new(domain: &Domain, max_operations: usize, max_copied: usize) -> Self {
        let handles = OpenHandles::new(domain);
        Self { domain: domain.clone(), handles, max_operations, max_copied }
    }

    /// Validates operations, and opens their collections.
    ///
    /// Opening claims a collection for the domain.
    ///
    /// # Errors
    /// [`RequestError::Invalid`], also for a collection that no operation may change. Errors of the
    /// engine, also for a missing collection.
    pub async fn prepare(&self, operations: Vec<Operation>) -> Result<Prepared> {
        let count: usize = operations.iter().map(validate::steps).sum();
        if count > self.max_operations {
            let most = self.max_operations;
            let why = format!("it has {count} operations and patch steps, at most {most} allowed");
            return Err(RequestError::Invalid(why));
        }
        let limits = self.domain.store().limits();
        validate::of_operations(&operations, &limits).map_err(RequestError::Invalid)?;
        let handles = self.handles.of(&operations).await?;
        Ok(Prepared { handles, operations, max_copied: self.max_copied })
    }

    /// Opens a collection, unless no operation may change it. Claims it for the domain.
    ///
    /// # Errors
    /// As [`Operations::prepare`].
    pub async fn collection(&self, name: &str) -> Result<Collection<Raw>> {
        Ok(self.handles.open(name).await?.raw)
    }

    /// Returns a collection that an earlier call opened.
    #[must_use]
    pub fn open_collection(&self, name: &str) -> Option<Collection<Raw>> {
        self.handles.known(name).map(|handle| handle.raw)
    }

    /// Refuses the name of a collection that no operation may change.
    ///
    /// # Errors
    /// [`RequestError::Invalid`].
    pub fn check_name(&self, name: &str) -> Result<()> {
        self.handles.check(name)
    }

    /// Forgets the open collections, for example after an alias was moved.
    pub fn forget_collections(&self) {
        self.handles.forget();
    }
}

impl Prepared {
    /// Executes the operations in a transaction, in their order.
    ///
    /// # Errors
    /// [`RequestError::Refused`]: the transaction must not commit. [`RequestError::Engine`]: return
    /// the error from the closure.
    pub async fn apply(&self, tx: &Transaction) -> Result<()> {
        let done = perform(tx, &self.handles, &self.operations, self.max_copied).await;
        done.map_err(|stop| match stop {
            Stop::Refused(refusal) => RequestError::Refused(refusal),
            Stop::Engine(error) => RequestError::Engine(error),
        })
    }
}
