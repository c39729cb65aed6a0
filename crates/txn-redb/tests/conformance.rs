//! The store in a file passes the suite of every store.

use std::sync::Arc;

use txn_redb::RedbStore;
use txn_store::conformance::{self, Options};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_conforms() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store.redb");
    // A second run, on the file that the first one left.
    for _ in 0..2 {
        let store = RedbStore::open(&path).expect("a store");
        conformance::run(Arc::new(store), Options::new("suite")).await;
    }
}
