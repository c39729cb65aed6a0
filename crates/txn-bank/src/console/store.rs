//! The store of the bank. No other module knows the kinds of stores.

use std::path::Path;
use std::sync::Arc;

use txn_core::store::{MemoryStore, Store};
use txn_es::{EsConfig, EsStore};
use txn_redb::RedbStore;

use crate::console::address::Address;
use crate::console::args::Global;
use crate::console::failure::Failure;

#[derive(Clone)]
pub(crate) struct OpenStore {
    pub(crate) store: Arc<dyn Store>,
    /// The description of the store, for operators.
    pub(crate) what: String,
    file: Option<RedbStore>,
}

impl OpenStore {
    /// A store in the memory of this process.
    pub(crate) fn memory() -> Self {
        let what = "memory of this process".to_owned();
        Self { store: Arc::new(MemoryStore::new()), what, file: None }
    }

    /// Opens the store. Creates a missing file only if `create`.
    pub(crate) async fn open(
        address: &Address,
        global: &Global,
        create: bool,
    ) -> Result<Self, Failure> {
        match address {
            Address::Memory => Ok(Self::memory()),
            Address::Redb(path) => Self::file(path, create),
            Address::Servers(urls) => {
                let config = EsConfig::new(urls).map_err(Failure::store)?;
                Self::servers(address, global, config).await
            }
            Address::Cloud(id) => {
                let config = EsConfig::from_cloud_id(id).map_err(Failure::store)?;
                Self::servers(address, global, config).await
            }
        }
    }

    async fn servers(
        address: &Address,
        global: &Global,
        config: EsConfig,
    ) -> Result<Self, Failure> {
        let config = global.access.apply(config)?;
        let store = EsStore::connect(config).await.map_err(Failure::store)?;
        let what = format!("{} at {address}", store.server());
        Ok(Self { store: Arc::new(store), what, file: None })
    }

    fn file(path: &Path, create: bool) -> Result<Self, Failure> {
        if !create && !path.exists() {
            return Err(Failure::misconfigured(format!(
                "there is no bank in {}: make it with `txn-bank init`",
                path.display()
            )));
        }
        let file = RedbStore::open(path)?;
        let what = format!("the embedded file {}", path.display());
        Ok(Self { store: Arc::new(file.clone()), what, file: Some(file) })
    }

    /// Closes a file, so that another process can open it.
    pub(crate) async fn close(self) {
        if let Some(file) = self.file {
            // The close waits for the writer thread.
            let closed = tokio::task::spawn_blocking(move || file.close()).await;
            if let Err(error) = closed {
                tracing::warn!(%error, "the file could not be closed");
            }
        }
    }
}
