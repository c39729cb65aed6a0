//! Rebuilding a domain of which a part was lost: for an operator, never done by itself.

use std::sync::Arc;

use crate::api::domain::Domain;
use crate::config::Config;
use crate::engine::Engine;
use crate::engine::attempt_error::AttemptError;
use crate::engine::rebuild::Rebuilt;
use crate::error::Result;
use crate::store::Store;

impl Domain {
    /// Rebuilds the domain document from the partitions and the claims that are left, and gives up what is not. For an
    /// operator, with **all processes of the domain stopped**: after [`ErrorKind::Damaged`] has named a lost part, and
    /// where no snapshot can be restored. Nothing is rebuilt of a domain that is whole. `docs/operations.md` says what
    /// can be rebuilt and what cannot.
    ///
    /// Of several partitions of one day the one that holds records becomes the official one, and empty ones are
    /// dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] if nothing of such a domain is there; [`ErrorKind::Damaged`] if several
    /// partitions of one day hold records, naming them, or the domain document cannot be read: delete it first;
    /// else as the store says.
    ///
    /// # Cancel safety
    /// Dropped or failed, it can be called again.
    ///
    /// [`ErrorKind::Damaged`]: crate::ErrorKind::Damaged
    /// [`ErrorKind::Misconfigured`]: crate::ErrorKind::Misconfigured
    pub async fn rebuild(store: Arc<dyn Store>, name: &str, config: Config) -> Result<Rebuilt> {
        let engine = Engine::new(store, name, config)?;
        let deadline = engine.deadline(engine.config.deadline);
        engine.rebuild(&deadline).await.map_err(AttemptError::into_error)
    }
}
