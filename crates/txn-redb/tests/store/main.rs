//! The guarantees of a store in a file.
//!
//! The conformance suite checks the guarantees of every store.

mod conditions;
mod crash;
mod damage;
mod disk;
mod file_size;
mod groups;
mod opening;
mod persistence;
mod power_loss;
mod scans;
mod transaction_power_loss;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use tempfile::TempDir;
use txn_core::clock::Clock;
use txn_redb::RedbStore;
use txn_store::{
    CollectionInfo, CollectionSpec, Key, Outcome, Read, Role, Source, Store, Version, Write,
    WriteOp,
};

/// A clock that runs faster than real time, and that a test moves ahead by days.
#[derive(Debug)]
struct TestClock {
    origin: Instant,
    wall: Duration,
    speed: u32,
    days: AtomicU32,
}

impl TestClock {
    fn new(speed: u32) -> Self {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { origin: Instant::now(), wall, speed, days: AtomicU32::new(0) }
    }

    fn advance(&self, days: u32) {
        self.days.fetch_add(days, Ordering::Relaxed);
    }
}

#[async_trait]
impl Clock for TestClock {
    fn wall(&self) -> Duration {
        self.wall + self.monotonic()
    }

    fn monotonic(&self) -> Duration {
        const DAY: Duration = Duration::from_secs(24 * 3_600);
        self.origin.elapsed() * self.speed + DAY * self.days.load(Ordering::Relaxed)
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration / self.speed).await;
    }
}

/// The path of the store, in a directory that the test removes.
struct Place {
    _directory: TempDir,
    path: PathBuf,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("store.redb");
        Self { _directory: directory, path }
    }

    fn open(&self) -> RedbStore {
        RedbStore::open(&self.path).expect("a store")
    }
}

fn spec(name: &str, owner: Option<&str>) -> CollectionSpec {
    let role = Role::Data { owner: owner.map(str::to_owned) };
    CollectionSpec { name: name.to_owned(), role, create: true, mappings: None }
}

async fn make(store: &RedbStore, name: &str) -> CollectionInfo {
    store.open_collection(&spec(name, None)).await.expect("a collection")
}

async fn one(store: &RedbStore, key: &Key, op: WriteOp) -> Outcome {
    let mut outcomes = store.write_many(&[Write::new(key.clone(), op)]).await;
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

fn applied(outcome: Outcome) -> Version {
    let Outcome::Applied(version) = outcome else { panic!("not applied: {outcome:?}") };
    version
}

async fn create(store: &RedbStore, key: &Key, source: &str) -> Version {
    applied(one(store, key, WriteOp::Create(source.into())).await)
}

async fn read(store: &RedbStore, key: &Key) -> Option<(Version, Source)> {
    match store.read_primary(std::slice::from_ref(key)).await.remove(0) {
        Read::Found { version, source } => Some((version, source)),
        Read::Absent => None,
        other => panic!("not readable: {other:?}"),
    }
}
