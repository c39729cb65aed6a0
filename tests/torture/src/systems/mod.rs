//! Kill soaks of the systems on the engine.
//!
//! The systems are requests, locks, the outbox, and the gateway.
//!
//! Workers are processes. The soak kills workers (SIGKILL), and pauses them beyond their lease
//! (SIGSTOP, SIGCONT), at random. Workers write their results in transactions, so that a final
//! check covers all results.

mod crew;
pub mod gateway;
pub mod locks;
pub mod outbox;
mod overload;
pub mod requests;
mod world;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::report::Report;

/// How often a worker tries to open the domain.
const TRIES: usize = 10;

/// A system on the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum System {
    /// Requests: processors are killed, clients submit.
    Requests,
    /// Locks: their holders are killed.
    Locks,
    /// The outbox: processors are killed, clients emit.
    Outbox,
    /// The gateway: it is killed, clients repeat requests under their keys.
    Gateway,
    /// The gateway, not killed: more connections and requests than it can serve.
    GatewayOverload,
}

/// A soak of one system on one server.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The system.
    pub system: System,
    /// The address of the server.
    pub url: String,
    /// The time in which workers are killed and paused.
    pub span: Duration,
    /// The number of concurrent workers.
    pub workers: usize,
    /// The silence after which a worker counts as dead. A silent worker gives no sign of life.
    pub lease: Duration,
    /// The program of a worker: this package's binary.
    pub binary: PathBuf,
    /// The same program in another version.
    pub other: Option<OtherVersion>,
}

/// A further version of the program of the workers.
#[derive(Clone, Debug)]
pub struct OtherVersion {
    /// The program.
    pub binary: PathBuf,
    /// Whether the versions run in turn. Otherwise every second worker has the other version.
    ///
    /// At each change all workers of one version are killed at once, and the other version takes
    /// over their work.
    pub in_turn: bool,
}

/// The time of one version, if the versions run in turn.
const TERM: Duration = Duration::from_secs(10);

impl Plan {
    /// Creates a soak with three workers and a lease of two seconds.
    #[must_use]
    pub fn new(system: System, url: &str, span: Duration, binary: PathBuf) -> Self {
        let (url, lease) = (url.to_owned(), Duration::from_secs(2));
        Self { system, url, span, workers: 3, lease, binary, other: None }
    }

    /// Runs a part of the workers in another version.
    #[must_use]
    pub fn with_other(mut self, other: Option<OtherVersion>) -> Self {
        self.other = other;
        self
    }

    /// Returns the program of a worker that starts after this time of the soak.
    fn program(&self, worker: usize, after: Duration) -> &Path {
        let has_other = |other: &&OtherVersion| match other.in_turn {
            true => term(after).is_multiple_of(2),
            false => worker.is_multiple_of(2),
        };
        self.other.as_ref().filter(has_other).map_or(&self.binary, |other| &other.binary)
    }

    /// Returns the time until the version of all workers changes.
    fn until_change(&self, after: Duration) -> Option<Duration> {
        let in_turn = self.other.as_ref().is_some_and(|other| other.in_turn);
        in_turn.then(|| TERM * (term(after) + 1) - after)
    }

    /// Runs the soak, and checks its results.
    ///
    /// # Errors
    /// If the soak cannot run.
    pub async fn run(&self) -> Result<Report, String> {
        match self.system {
            System::Requests => requests::run(self).await,
            System::Locks => locks::run(self).await,
            System::Outbox => outbox::run(self).await,
            System::Gateway => gateway::run(self).await,
            System::GatewayOverload => overload::run(self).await,
        }
    }

    /// The job of a worker. `listen`: the address of a gateway.
    fn job(&self, domain: &str, listen: String) -> Job {
        let lease_ms = u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX);
        let (url, domain) = (self.url.clone(), domain.to_owned());
        Job { system: self.system, url, domain, lease_ms, listen }
    }
}

/// Returns the number of the version's term.
fn term(after: Duration) -> u32 {
    u32::try_from(after.as_secs() / TERM.as_secs()).unwrap_or(u32::MAX)
}

/// The job of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    pub(crate) system: System,
    pub(crate) url: String,
    /// The name of the domain.
    pub(crate) domain: String,
    pub(crate) lease_ms: u64,
    /// The address of a gateway.
    pub(crate) listen: String,
}

/// Runs a worker until it is killed.
///
/// # Errors
/// If the worker cannot start.
pub async fn work(job: &str) -> Result<(), String> {
    let job: Job = serde_json::from_str(job).map_err(|error| error.to_string())?;
    let mut tries = 0;
    let world = loop {
        match world::World::open(&job.url, &job.domain, job.lease()).await {
            Ok(world) => break world,
            // A busy server is not a fault of the worker.
            Err(why) if tries >= TRIES => return Err(why),
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
        tries += 1;
    };
    match job.system {
        System::Requests => requests::work(&world, job.lease()).await,
        System::Locks => locks::work(&world, job.lease()).await,
        System::Outbox => outbox::work(&world, job.lease()).await,
        System::Gateway | System::GatewayOverload => gateway::work(&world, &job).await,
    }
}

impl Job {
    fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }
}
