//! Release of a collection, and removal of a domain.

use super::Admin;
use crate::api::shutdown::shut_down;
use crate::engine::attempt_error::AttemptError;
use crate::error::{Error, ErrorKind, Result};

impl Admin<'_> {
    /// Releases a collection from the domain.
    ///
    /// The call removes the claim, the entry in the domain document, and everything that the store
    /// added to the collection. The documents stay unchanged, with the reserved fields of their
    /// last commit. Afterwards another domain may claim the collection, or plain clients may use
    /// the collection alone. Before the call, every process of the domain must stop using the
    /// collection.
    ///
    /// The call is idempotent. A collection that was deleted by other means is released, too.
    ///
    /// # Errors
    /// - [`ErrorKind::Conflict`] if a document of the collection is locked, or an open transaction
    ///   names the collection. Nothing is released: call [`Admin::janitor_pass`], and try again.
    /// - [`ErrorKind::Misconfigured`] if the collection does not belong to this domain. Nothing is
    ///   released.
    /// - The errors of the store.
    ///
    /// # Cancel safety
    /// After a dropped future, the call can be repeated.
    pub async fn release_collection(self, name: &str) -> Result<()> {
        let engine = self.engine;
        let deadline = engine.context.deadline(engine.context.config.timeout);
        engine.admin.release(name, &deadline).await.map_err(AttemptError::into_error)
    }

    /// Removes the domain, and keeps its collections and documents.
    ///
    /// The call drops the transaction table, releases the collections, and deletes the domain
    /// document. All other processes of the domain must be stopped before. The call shuts down this
    /// handle of the domain, and its clones.
    ///
    /// # Errors
    /// After an error, open the domain with [`Domain::open`](crate::Domain::open), and repeat the
    /// call.
    /// - [`ErrorKind::Conflict`] if a lock or an open transaction is left, or a process still uses
    ///   the domain.
    /// - [`ErrorKind::Damaged`] if an operator must repair a document first.
    /// - [`ErrorKind::Unavailable`] if a collection cannot be scanned.
    /// - The errors of the store.
    ///
    /// # Cancel safety
    /// After a dropped future, the call can be repeated after
    /// [`Domain::open`](crate::Domain::open).
    pub async fn remove(self) -> Result<()> {
        let engine = self.engine;
        shut_down(engine, engine.context.config.timeout).await;
        let report = self.janitor_pass().await?;
        if let Some((document, what)) = report.damaged.first() {
            return Err(Error::damaged(what.as_str()).at(document));
        }
        if let Some((name, why)) = report.unreachable.first() {
            return Err(Error::unavailable(format!("cannot look at {name:?}: {why}")));
        }
        if !report.is_clean() {
            let (locks, open) = (report.locked.len(), report.open.len());
            let message = format!(
                "{locks} documents are locked and {open} transactions are open: stop all processes of the domain"
            );
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        let deadline = engine.context.deadline(engine.context.config.timeout);
        engine.admin.remove(&deadline).await.map_err(AttemptError::into_error)
    }
}
