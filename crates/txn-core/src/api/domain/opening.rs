//! Opening and creation of a domain.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::api::domain::Domain;
use crate::config::Config;
use crate::engine::Engine;
use crate::engine::attempt_error::AttemptError;
use crate::error::Result;
use crate::group::Groups;
use txn_store::Store;

impl Domain {
    /// Opens an existing domain.
    ///
    /// A mistyped name never creates a domain. [`Domain::open_or_create`] creates one.
    ///
    /// # Errors
    /// - [`ErrorKind::Invalid`] for a name or a configuration that cannot work.
    /// - [`ErrorKind::Misconfigured`] if the domain does not exist, or the clock of this process is
    ///   ahead of the clock of the server.
    /// - [`ErrorKind::Damaged`] if a part of the domain is lost. The message names the part.
    /// - [`ErrorKind::Unavailable`] and [`ErrorKind::Misconfigured`] from the store.
    ///
    /// [`ErrorKind::Invalid`]: crate::ErrorKind::Invalid
    /// [`ErrorKind::Misconfigured`]: crate::ErrorKind::Misconfigured
    /// [`ErrorKind::Damaged`]: crate::ErrorKind::Damaged
    /// [`ErrorKind::Unavailable`]: crate::ErrorKind::Unavailable
    pub async fn open(store: Arc<dyn Store>, name: &str, config: Config) -> Result<Self> {
        Self::start_up(store, name, config, false).await
    }

    /// Opens a domain, and creates the domain if necessary.
    ///
    /// # Errors
    /// As [`Domain::open`], except that a missing domain is no error.
    pub async fn open_or_create(store: Arc<dyn Store>, name: &str, config: Config) -> Result<Self> {
        Self::start_up(store, name, config, true).await
    }

    fn start_up(
        store: Arc<dyn Store>,
        name: &str,
        config: Config,
        create: bool,
    ) -> BoxFuture<'_, Result<Self>> {
        Box::pin(async move {
            let engine = Engine::build(store, name, config)?;
            engine.start_up(create).await.map_err(AttemptError::into_error)?;
            Ok(Self { groups: Groups::of(&engine), engine, answers: Arc::default() })
        })
    }
}
