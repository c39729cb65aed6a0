//! Stores by their address.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use txn_core::store::{MemoryStore, Store};
use txn_es::{EsConfig, EsStore};
use txn_redb::RedbStore;

use crate::access::Access;
use crate::address::Address;
use crate::failure::StoreFailure;

/// An open store of a command.
#[derive(Clone)]
pub struct OpenStore {
    /// The store that the address names, ready for requests.
    pub store: Arc<dyn Store>,
    /// The description of the store, for operators.
    pub what: String,
    file: Option<RedbStore>,
    servers: Option<EsStore>,
}

impl fmt::Debug for OpenStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenStore").field("what", &self.what).finish_non_exhaustive()
    }
}

impl OpenStore {
    /// Creates a store in the memory of this process.
    #[must_use]
    pub fn memory() -> Self {
        let what = "memory of this process".to_owned();
        Self { store: Arc::new(MemoryStore::new()), what, file: None, servers: None }
    }

    /// Opens the store. Creates a missing file only if `create`.
    ///
    /// # Errors
    /// [`StoreFailure`] if the store cannot be opened.
    pub async fn open(
        address: &Address,
        access: &Access,
        create: bool,
    ) -> Result<Self, StoreFailure> {
        match address {
            Address::Memory => Ok(Self::memory()),
            Address::Redb(path) => Self::file(path, create),
            Address::Servers(urls) => Self::connect(address, access, EsConfig::new(urls)?).await,
            Address::Cloud(id) => {
                Self::connect(address, access, EsConfig::from_cloud_id(id)?).await
            }
        }
    }

    async fn connect(
        address: &Address,
        access: &Access,
        config: EsConfig,
    ) -> Result<Self, StoreFailure> {
        let store = EsStore::connect(access.apply(config)?).await?;
        let what = format!("{} at {address}", store.server());
        Ok(Self { store: Arc::new(store.clone()), what, file: None, servers: Some(store) })
    }

    fn file(path: &Path, create: bool) -> Result<Self, StoreFailure> {
        if !create && !path.exists() {
            let path = path.display();
            return Err(StoreFailure::Misconfigured(format!(
                "there is no file {path}: check --store, or make the file with the verb `init`"
            )));
        }
        let file = RedbStore::open(path)?;
        let what = format!("the embedded file {}", path.display());
        Ok(Self { store: Arc::new(file.clone()), what, file: Some(file), servers: None })
    }

    /// Returns the store of servers; `None` for a file and for memory.
    #[must_use]
    pub fn servers(&self) -> Option<&EsStore> {
        self.servers.as_ref()
    }

    /// Closes a file, so that another process can open it.
    pub async fn close(self) {
        if let Some(file) = self.file {
            // The close waits for the writer thread.
            let closed = tokio::task::spawn_blocking(move || file.close()).await;
            if let Err(error) = closed {
                tracing::warn!(%error, "the file could not be closed");
            }
        }
    }
}
