//! Taking the engine out again: releasing a collection, removing a domain.

use crate::api::domain::Domain;
use crate::engine::attempt_error::AttemptError;
use crate::error::{Error, ErrorKind, Result};

impl Domain {
    /// Releases a collection: takes off its claim, its entry in the domain document, and what the store added to it.
    /// Its documents stay as they are, with the reserved fields of their last commit; another domain may claim it, and
    /// plain clients may have it for themselves. Every process of the domain has to have stopped using it before.
    ///
    /// Idempotent; a collection that was deleted by other means is released, too.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if a document in it is locked or an open transaction names it: call
    /// [`Domain::janitor_pass`], and try again; [`ErrorKind::Misconfigured`] if it does not belong to this domain;
    /// else as the store says. Nothing is released then.
    ///
    /// # Cancel safety
    /// Dropped half-way, it can be called again.
    pub async fn release_collection(&self, name: &str) -> Result<()> {
        let engine = &self.engine;
        let deadline = engine.deadline(engine.config.deadline);
        engine.release(name, &deadline).await.map_err(AttemptError::into_error)
    }

    /// Removes the domain: drops its transaction table, releases its collections, and deletes its document. The
    /// collections and their documents stay. All other processes of the domain have to be stopped before.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if a lock or an open transaction is left, or somebody is still at it;
    /// [`ErrorKind::Damaged`] if a person must look first; [`ErrorKind::Unavailable`] if a collection cannot be
    /// looked at; else as the store says. It can be called again, after [`Domain::open`].
    ///
    /// # Cancel safety
    /// Dropped half-way, it can be called again, after [`Domain::open`].
    pub async fn remove(self) -> Result<()> {
        let engine = self.engine.clone();
        self.shutdown(engine.config.deadline).await;
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
        let deadline = engine.deadline(engine.config.deadline);
        engine.remove(&deadline).await.map_err(AttemptError::into_error)
    }
}
