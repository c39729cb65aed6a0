//! Rebuild of a domain after the loss of a part.
//!
//! Only an operator starts a rebuild.

use std::sync::Arc;

use super::Admin;
use crate::config::Config;
use crate::engine::Engine;
use crate::engine::admin::rebuild::RebuildReport;
use crate::engine::attempt_error::AttemptError;
use crate::error::Result;
use txn_store::Store;

impl Admin<'_> {
    /// Rebuilds the domain document from the remaining partitions and claims.
    ///
    /// The call is for an operator, with **all processes of the domain stopped**. The reason for a
    /// rebuild is a lost part, which [`ErrorKind::Damaged`] names, without a snapshot to restore.
    /// The rebuild gives up the parts that are lost. A complete domain stays unchanged.
    /// `docs/operations.md` lists the parts that can be rebuilt.
    ///
    /// If a day has several partitions, the partition that holds records becomes the official one.
    /// The rebuild drops the empty ones.
    ///
    /// # Errors
    /// - [`ErrorKind::Misconfigured`] if no part of such a domain exists.
    /// - [`ErrorKind::Damaged`] if several partitions of one day hold records. The message names
    ///   them.
    /// - [`ErrorKind::Damaged`] if the domain document cannot be read. Delete the document first.
    /// - The errors of the store.
    ///
    /// # Cancel safety
    /// After a dropped future or an error, the call can be repeated.
    ///
    /// [`ErrorKind::Damaged`]: crate::ErrorKind::Damaged
    /// [`ErrorKind::Misconfigured`]: crate::ErrorKind::Misconfigured
    pub async fn rebuild(
        store: Arc<dyn Store>,
        name: &str,
        config: Config,
    ) -> Result<RebuildReport> {
        let engine = Engine::build(store, name, config)?;
        let deadline = engine.context.deadline(engine.context.config.timeout);
        engine.admin.rebuild(&deadline).await.map_err(AttemptError::into_error)
    }
}
