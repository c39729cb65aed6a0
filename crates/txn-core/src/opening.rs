//! Opening a domain that exists, and making one.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::domain::Domain;
use crate::engine::{Engine, KnownAborted};
use crate::error::{Error, ErrorKind, Result};
use crate::liveness::Liveness;
use crate::stop::{Patience, Stop};
use crate::store::{CollectionSpec, Role, Store};
use crate::table::{REGISTRY, Table};
use crate::tid::{Day, TidSource};
use crate::wait::Locals;

impl Domain {
    /// Opens a domain that exists. One that does not is made by [`Domain::create`]: a mistyped name never makes a
    /// domain.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a name or a configuration that can not work;
    /// [`ErrorKind::Misconfigured`] if there is no domain of that name;
    /// [`ErrorKind::Unavailable`] and [`ErrorKind::Misconfigured`] as the store says.
    pub async fn open(store: Arc<dyn Store>, name: &str, config: Config) -> Result<Self> {
        Self::start_up(store, name, config, false).await
    }

    /// Makes a domain, and opens it. One that exists is opened.
    ///
    /// # Errors
    /// As [`Domain::open`], but for a domain that does not exist.
    pub async fn create(store: Arc<dyn Store>, name: &str, config: Config) -> Result<Self> {
        Self::start_up(store, name, config, true).await
    }

    async fn start_up(
        store: Arc<dyn Store>,
        name: &str,
        config: Config,
        create: bool,
    ) -> Result<Self> {
        config.check()?;
        check_name(name)?;
        let engine = Arc::new(Engine {
            tids: TidSource::new(config.clock.clone(), &*config.entropy),
            table: Table::new(name),
            locals: Arc::new(Locals::default()),
            liveness: Liveness::default(),
            aborted: KnownAborted::default(),
            collections: parking_lot::Mutex::default(),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            left_over: std::sync::atomic::AtomicBool::default(),
            tombstone: tokio::sync::Mutex::default(),
            store,
            config,
        });
        let patience = engine.patience(engine.config.deadline);
        engine.find_domain(create, &patience).await.map_err(Stop::into_error)?;
        let today = Day::of_unix_time(engine.config.clock.wall());
        for day in [today, today.plus(1)] {
            engine.ensure_partition(day, &patience).await.map_err(Stop::into_error)?;
        }
        crate::janitor::start(&engine);
        Ok(Self { engine })
    }
}

impl Engine {
    /// Finds the registry and the domain document in it, or makes what is missing.
    async fn find_domain(&self, create: bool, patience: &Patience) -> Result<(), Stop> {
        let registry =
            CollectionSpec { name: REGISTRY.into(), role: Role::Registry, create, mappings: None };
        match self.patiently(patience, || self.store.open_collection(&registry)).await {
            Ok(_) => {}
            Err(Stop::Fail(error)) if !create && error.is_not_found() => {
                return Err(self.no_domain().into());
            }
            Err(stop) => return Err(stop),
        }
        if create {
            return self.domain_document(patience).await.map(|_| ());
        }
        match self.read_domain(patience).await? {
            Some(_) => Ok(()),
            None => Err(self.no_domain().into()),
        }
    }

    fn no_domain(&self) -> Error {
        let name = self.table.domain();
        let message = format!(
            "there is no domain {name:?} in this store: check the name, or make it with Domain::create"
        );
        Error::new(ErrorKind::Misconfigured, message)
    }
}

/// Domain names become parts of collection names.
fn check_name(name: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    if starts && name.len() <= 64 && name.chars().all(plain) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{name:?} can not name a domain: use 1 to 64 of a-z, 0-9, - and _, beginning with a letter or a digit"
    )))
}
