//! The store and the domain of one command.

use std::time::Duration;

use txn_cli::{Address, OpenStore};
use txn_core::store::Store;
use txn_core::{Config, Domain};
use txn_es::EsStore;

use crate::answer::Failure;
use crate::args::Global;

/// How long a command waits at its end for unapplied commits.
const DRAIN: Duration = Duration::from_secs(10);

/// The days that a pass of the command keeps: all of them.
const LONGEST_RETENTION: u16 = 10_000;

/// An open domain, and its store.
pub(crate) struct Session {
    pub(crate) domain: Domain,
    open: OpenStore,
}

impl Session {
    /// Opens an existing domain. The command recovers nothing in the background.
    pub(crate) async fn open(global: &Global) -> Result<Self, Failure> {
        Self::of(store(global, false).await?, global).await
    }

    /// Opens an existing domain of a store.
    pub(crate) async fn of(open: OpenStore, global: &Global) -> Result<Self, Failure> {
        match Domain::open(open.store.clone(), name(global)?, config(global)).await {
            Ok(domain) => Ok(Self { domain, open }),
            Err(error) => {
                open.close().await;
                Err(error.into())
            }
        }
    }

    /// Opens a domain, and creates the file and the domain if necessary.
    pub(crate) async fn create(global: &Global) -> Result<Self, Failure> {
        let open = store(global, true).await?;
        match Domain::open_or_create(open.store.clone(), name(global)?, config(global)).await {
            Ok(domain) => Ok(Self { domain, open }),
            Err(error) => {
                open.close().await;
                Err(error.into())
            }
        }
    }

    /// The description of the store, for operators.
    pub(crate) fn what(&self) -> &str {
        &self.open.what
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.open.store
    }

    /// The store of servers, for questions about them.
    pub(crate) fn servers(&self) -> Option<&EsStore> {
        self.open.servers()
    }

    /// Ends the domain, and closes the file.
    pub(crate) async fn close(self) {
        if !self.domain.shutdown(DRAIN).await {
            tracing::warn!("not everything is applied yet: another process does the rest");
        }
        self.open.close().await;
    }
}

/// Opens the store alone.
pub(crate) async fn store(global: &Global, create: bool) -> Result<OpenStore, Failure> {
    let address = global.store.as_ref().ok_or_else(|| {
        Failure::invalid(
            "name the store by --store or TXN_STORE, such as redb:PATH or https://host:9200",
        )
    })?;
    if *address == Address::Memory {
        return Err(Failure::invalid("memory: holds nothing between two commands"));
    }
    Ok(OpenStore::open(address, &global.access, create).await?)
}

/// The name of the domain.
pub(crate) fn name(global: &Global) -> Result<&str, Failure> {
    let name = global.domain.as_deref();
    name.ok_or_else(|| Failure::invalid("name the domain by --domain or TXN_DOMAIN"))
}

/// The settings of the command.
///
/// The retention belongs to the processes of the domain, so the command drops no day.
pub(crate) fn config(global: &Global) -> Config {
    let lease = Duration::from_secs(global.lease);
    Config::default()
        .with_application_name(Some("txn".to_owned()))
        .with_janitor_interval(None)
        .with_lease(lease)
        .with_attempt_timeout(Config::default().attempt_timeout().max(lease))
        .with_retention_days(LONGEST_RETENTION)
}
