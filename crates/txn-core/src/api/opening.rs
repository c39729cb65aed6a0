//! Opening a domain that exists, and making one.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::domain::Domain;
use crate::config::Config;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::domain_document::{REGISTRY, RegistryDocument, encode};
use crate::engine::failure_detector::Liveness;
use crate::engine::lock_queue::LiveAttempts;
use crate::engine::server_clock::ServerClock;
use crate::engine::shared_requests::SharedRequests;
use crate::engine::transaction_table::Table;
use crate::engine::{Engine, KnownAborted};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{CollectionSpec, Role, Store};
use txn_protocol::machines::domain::{DomainDocument, MakeOnce};
use txn_protocol::tid::{Day, TidSource};

impl Domain {
    /// Opens a domain that exists. One that does not is made by [`Domain::create`]: a mistyped name never makes a
    /// domain.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a name or a configuration that cannot work;
    /// [`ErrorKind::Misconfigured`] if there is no domain of that name, or the clock of this process is ahead of the
    /// server's; [`ErrorKind::Damaged`] if a part of the domain was lost, naming it;
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
        let engine = Engine::new(store, name, config)?;
        let deadline = engine.deadline(engine.config.deadline);
        let opened = async {
            let has_clock = engine.look_at_the_clock().await;
            engine.check_clock()?;
            engine.find_domain(create, &deadline).await?;
            let today = Day::of_unix_time(engine.config.clock.wall());
            for day in [today, today.plus(1)] {
                engine.ensure_partition(day, &deadline).await?;
            }
            Ok::<_, AttemptError>(has_clock)
        };
        if opened.await.map_err(AttemptError::into_error)? {
            engine.watch_the_clock();
        }
        crate::engine::turn::start(&engine);
        Ok(Self { engine })
    }
}

impl Engine {
    pub(crate) fn new(store: Arc<dyn Store>, name: &str, config: Config) -> Result<Arc<Self>> {
        config.check()?;
        check_name(name)?;
        let tasks = TaskTracker::new();
        let shares = config.shared_requests.unwrap_or(store.limits().shares_requests);
        let front = || -> Arc<dyn Store> {
            match shares {
                true => Arc::new(SharedRequests::new(store.clone(), &tasks, &config.clock)),
                false => store.clone(),
            }
        };
        Ok(Arc::new(Self {
            tids: TidSource::new(config.clock.clone(), &*config.entropy),
            table: Table::new(name),
            live_attempts: Arc::new(LiveAttempts::default()),
            liveness: Liveness::default(),
            aborted: KnownAborted::default(),
            collections: parking_lot::Mutex::default(),
            runtime: tokio::runtime::Handle::try_current().ok(),
            // What decides, and keeps an owner alive, does not wait behind documents on a shard that hangs.
            records: front(),
            store: front(),
            tasks,
            closing: CancellationToken::new(),
            left_over: std::sync::atomic::AtomicBool::default(),
            absence_probe: tokio::sync::Mutex::default(),
            server_clock: ServerClock::default(),
            rules: config.rules.clone(),
            config,
        }))
    }

    /// Finds the domain whole, or makes it where there is nothing of it.
    async fn find_domain(&self, create: bool, deadline: &Deadline) -> Result<(), AttemptError> {
        let document = match self.read_domain(deadline).await? {
            Some((document, ..)) => document,
            None => {
                if self.has_traces(deadline).await? {
                    // Another process may have made it since.
                    return match self.read_domain(deadline).await? {
                        Some(_) => Ok(()),
                        None => Err(self.lost_document().into()),
                    };
                }
                return match create {
                    true => self.make_domain(deadline).await,
                    false => Err(self.no_domain().into()),
                };
            }
        };
        let existing = self.existing_partitions(deadline).await?;
        for (day, name) in &document.partitions {
            if !existing.get(day).is_some_and(|names| names.iter().any(|n| **n == **name)) {
                // A list may be late: the partition itself says it.
                self.ensure_partition(*day, deadline).await?;
            }
        }
        let forgotten = self.forgotten_partitions(&document, &existing, deadline).await?;
        if !forgotten.is_empty() {
            // The list may be newer than the document.
            let (document, ..) = self.domain_document(deadline).await?;
            let forgotten = self.forgotten_partitions(&document, &existing, deadline).await?;
            if let Some(error) = forgotten.into_iter().next() {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Whether anything is left of a domain that has no document.
    async fn has_traces(&self, deadline: &Deadline) -> Result<bool, AttemptError> {
        if !self.existing_partitions(deadline).await?.is_empty() {
            return Ok(true);
        }
        match self.claims(deadline).await {
            Ok(claims) => Ok(!claims.is_empty()),
            Err(AttemptError::Fail(error)) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn make_domain(&self, deadline: &Deadline) -> Result<(), AttemptError> {
        self.open_registry(deadline).await?;
        let key = self.table.domain_key();
        let content = |_: &_| encode(&DomainDocument::default());
        let place = RegistryDocument(&key);
        let settled = self.settle(&place, &MakeOnce, (None, None), content, deadline).await;
        settled.map(|_| ()).map_err(|e| e.while_doing("make the domain document"))
    }

    /// Makes the registry, if it is missing.
    pub(crate) async fn open_registry(&self, deadline: &Deadline) -> Result<(), AttemptError> {
        let registry = CollectionSpec {
            name: REGISTRY.into(),
            role: Role::Registry,
            create: true,
            mappings: None,
        };
        self.retry_unavailable(deadline, || self.store.open_collection(&registry)).await.map(|_| ())
    }

    pub(crate) fn no_domain(&self) -> Error {
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
        "{name:?} cannot name a domain: use 1 to 64 of a-z, 0-9, - and _, beginning with a letter or a digit"
    )))
}
