//! The store in a file passes the conformance suite.

use std::sync::Arc;

use txn_redb::RedbStore;
use txn_store::conformance::{self, Options};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_conforms() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store.redb");
    // The second run uses the file of the first.
    for _ in 0..2 {
        let store = RedbStore::open(&path).expect("a store");
        conformance::run(Arc::new(store), Options::new("suite")).await;
    }
}
