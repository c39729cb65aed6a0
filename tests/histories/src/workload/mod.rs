//! Seeded random transactions over any number of processes, and their history.
//!
//! ```
//! use std::sync::Arc;
//! use txn_core::store::MemoryStore;
//! use txn_core::{Config, Domain, Error};
//! use txn_histories::history::Model;
//! use txn_histories::{Fleet, Stop, Workload, WorkloadConfig, check};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! let store = Arc::new(MemoryStore::new());
//! let domain = Domain::open_or_create(store, "demo", Config::default()).await?;
//! let workload = Workload::new(WorkloadConfig::new(Model::ListAppend));
//! let until = Stop::default().after_transactions(100);
//! let mut history = workload.run(&Fleet::new([domain.clone()]), &until).await?;
//! workload.settle(&mut history, &domain).await?;
//! let verdict = check(&history);
//! assert!(verdict.holds_with(50), "{verdict}");
//! # Ok(())
//! # }
//! ```
//!
//! A long run consists of many short ones, because histories are kept in memory and checked as a
//! whole. Give each run a [`WorkloadConfig::prefix`] of its own, so that it begins with unwritten
//! keys.

mod config;
mod counters;
mod plan;
mod settle;
mod worker;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::Instant;
use txn_core::{Collection, Domain, Error, Typed};

pub use config::{Stop, WorkloadConfig};
pub use counters::{Counters, Counts};

use crate::history::History;
use crate::recorder::Recorder;
use plan::{Planner, Supply};
use worker::Worker;

/// The content of a document: a list, or a register.
///
/// A register is a list of at most one value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Values {
    /// The values, oldest first.
    pub values: Vec<u64>,
}

type Documents = Collection<Typed<Values>>;

/// The processes of a run: domains of one name over one store.
///
/// A process may be replaced during the run, as processes die and start again.
#[derive(Debug)]
pub struct Fleet {
    domains: Vec<RwLock<Domain>>,
}

impl Fleet {
    /// A fleet of these processes.
    ///
    /// # Panics
    /// If there is no process.
    pub fn new(domains: impl IntoIterator<Item = Domain>) -> Arc<Self> {
        let domains: Vec<_> = domains.into_iter().map(RwLock::new).collect();
        assert!(!domains.is_empty(), "a fleet has at least one process");
        Arc::new(Self { domains })
    }

    /// The number of processes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.domains.len()
    }

    /// A process of the fleet. Numbers beyond the last begin again with the first.
    #[must_use]
    pub fn domain(&self, number: usize) -> Domain {
        self.domains[number % self.domains.len()].read().clone()
    }

    /// Replaces a process, and returns the previous one.
    ///
    /// Call [`Workload::open`] for the new process first. Transactions under way stay with the
    /// previous process.
    pub fn replace(&self, number: usize, domain: Domain) -> Domain {
        std::mem::replace(&mut *self.domains[number % self.domains.len()].write(), domain)
    }
}

/// Runs random transactions.
#[derive(Debug)]
pub struct Workload {
    config: WorkloadConfig,
    counters: Arc<Counters>,
}

impl Workload {
    /// A workload with these settings.
    #[must_use]
    pub fn new(config: WorkloadConfig) -> Self {
        Self { config, counters: Arc::default() }
    }

    /// Adds to these counters, such as those of an earlier workload.
    #[must_use]
    pub fn with_counters(mut self, counters: Arc<Counters>) -> Self {
        self.counters = counters;
        self
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &WorkloadConfig {
        &self.config
    }

    /// The live counters.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// Runs transactions until the end is reached.
    ///
    /// Transactions under way run to their end.
    ///
    /// # Errors
    /// The collection cannot be opened.
    ///
    /// # Cancel safety
    /// If the future is dropped, all transactions are dropped and the history is lost.
    pub async fn run(&self, fleet: &Arc<Fleet>, until: &Stop) -> Result<History, Error> {
        let documents = self.documents(&fleet.domain(0)).await?;
        for number in 1..fleet.size() {
            self.open(&fleet.domain(number)).await?;
        }
        let recorder = Arc::new(Recorder::after(Vec::new()));
        let supply = Arc::new(Supply::new(&self.config));
        let (began, begun) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let mut workers = JoinSet::new();
        for number in 0..self.config.workers.max(1) {
            let worker = Worker {
                number,
                config: self.config.clone(),
                fleet: fleet.clone(),
                documents: documents.clone(),
                recorder: recorder.clone(),
                supply: supply.clone(),
                planner: Planner::new(&self.config, number as u64),
                counters: self.counters.clone(),
                began,
                begun: begun.clone(),
            };
            workers.spawn(worker.work(until.clone()));
        }
        workers.join_all().await;
        let entries = recorder.finish();
        Ok(History { model: self.config.model, entries, finals: None })
    }

    /// Opens the collection in a process, or makes a missing one.
    ///
    /// [`Workload::run`] opens the collection for its first processes. A process that joins the
    /// fleet later needs this call before.
    ///
    /// # Errors
    /// The collection cannot be opened.
    pub async fn open(&self, domain: &Domain) -> Result<(), Error> {
        self.documents(domain).await.map(drop)
    }

    async fn documents(&self, domain: &Domain) -> Result<Documents, Error> {
        domain.create_collection(&self.config.collection, None).await
    }
}

impl WorkloadConfig {
    /// The id of the document of a key.
    #[must_use]
    pub fn id(&self, key: u64) -> String {
        format!("{}-{key}", self.prefix)
    }
}
