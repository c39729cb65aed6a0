//! The guarantees of a store in a file.
//!
//! The conformance suite checks the guarantees of every store.

mod conditions;
mod crash;
mod damage;
mod disk;
mod groups;
mod opening;
mod persistence;
mod power_loss;
mod scans;
mod transaction_power_loss;

use std::path::PathBuf;

use tempfile::TempDir;
use txn_redb::RedbStore;
use txn_store::{
    CollectionInfo, CollectionSpec, Key, Outcome, Read, Role, Source, Store, Version, Write,
    WriteOp,
};

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
