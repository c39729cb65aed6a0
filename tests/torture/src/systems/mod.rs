//! Kill soaks of what stands on the engine: requests, locks, the outbox.
//!
//! Workers are processes of their own, which are killed (SIGKILL) and paused beyond their lease (SIGSTOP, SIGCONT) at random.
//! What they do is written by transactions, so that it can be checked in the end, whoever did it.

mod crew;
pub mod locks;
pub mod outbox;
pub mod requests;
mod world;

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::report::Report;

/// How often a worker tries again to open the domain.
const TRIES: usize = 10;

/// A system on top of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum System {
    /// Requests: processors are killed, clients submit.
    Requests,
    /// Locks: their holders are killed.
    Locks,
    /// The outbox: processors are killed, clients emit.
    Outbox,
}

/// A soak of one system on one server.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What.
    pub system: System,
    /// The address of the server.
    pub url: String,
    /// How long workers are killed and paused.
    pub span: Duration,
    /// How many workers there are at once.
    pub workers: usize,
    /// How long a worker may show no sign of life.
    pub lease: Duration,
    /// What a worker is started as: this package's binary.
    pub binary: PathBuf,
}

impl Plan {
    /// A soak with three workers and a lease of two seconds.
    #[must_use]
    pub fn new(system: System, url: &str, span: Duration, binary: PathBuf) -> Self {
        let (url, lease) = (url.to_owned(), Duration::from_secs(2));
        Self { system, url, span, workers: 3, lease, binary }
    }

    /// Runs it, and compares.
    ///
    /// # Errors
    /// If it cannot be run.
    pub async fn run(&self) -> Result<Report, String> {
        match self.system {
            System::Requests => requests::run(self).await,
            System::Locks => locks::run(self).await,
            System::Outbox => outbox::run(self).await,
        }
    }
}

/// What a worker is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    pub(crate) system: System,
    pub(crate) url: String,
    /// The name of the domain.
    pub(crate) domain: String,
    pub(crate) lease_ms: u64,
}

/// What a process does that is a worker: until it is killed.
///
/// # Errors
/// If it cannot begin.
pub async fn work(job: &str) -> Result<(), String> {
    let job: Job = serde_json::from_str(job).map_err(|error| error.to_string())?;
    let mut tries = 0;
    let world = loop {
        match world::World::open(&job.url, &job.domain, job.lease()).await {
            Ok(world) => break world,
            // A busy server is no fault of a worker.
            Err(why) if tries >= TRIES => return Err(why),
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
        tries += 1;
    };
    match job.system {
        System::Requests => requests::work(&world, job.lease()).await,
        System::Locks => locks::work(&world, job.lease()).await,
        System::Outbox => outbox::work(&world, job.lease()).await,
    }
}

impl Job {
    fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }
}
