//! Opening a domain that exists, and making one.

use std::sync::Arc;

use crate::api::domain::Domain;
use crate::config::Config;
use crate::engine::Engine;
use crate::engine::attempt_error::AttemptError;
use crate::error::Result;
use crate::group::Groups;
use crate::store::Store;

impl Domain {
    /// Opens a domain that exists. One that does not is made by [`Domain::create`]: a mistyped name never makes a
    /// domain.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a name or a configuration that cannot work;
    /// [`ErrorKind::Misconfigured`] if there is no domain of that name, or the clock of this process is ahead of the
    /// server's; [`ErrorKind::Damaged`] if a part of the domain was lost, naming it;
    /// [`ErrorKind::Unavailable`] and [`ErrorKind::Misconfigured`] as the store says.
    ///
    /// [`ErrorKind::Invalid`]: crate::ErrorKind::Invalid
    /// [`ErrorKind::Misconfigured`]: crate::ErrorKind::Misconfigured
    /// [`ErrorKind::Damaged`]: crate::ErrorKind::Damaged
    /// [`ErrorKind::Unavailable`]: crate::ErrorKind::Unavailable
    pub async fn open(store: Arc<dyn Store>, name: &str, config: Config) -> Result<Self> {
        Self::start_up(store, name, config, false).await
    }

    /// Makes a domain, and opens it. One that exists is opened.
    ///
    /// # Errors
    /// As [`Domain::open`], except that a domain that does not exist is no error.
    pub async fn create(store: Arc<dyn Store>, name: &str, config: Config) -> Result<Self> {
        Self::start_up(store, name, config, true).await
    }

    async fn start_up(
        store: Arc<dyn Store>,
        name: &str,
        config: Config,
        create: bool,
    ) -> Result<Self> {
        let engine = Engine::new(store, name, config)?;
        engine.start_up(create).await.map_err(AttemptError::into_error)?;
        Ok(Self { groups: Groups::of(&engine), engine })
    }
}
