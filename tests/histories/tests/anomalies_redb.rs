//! The named anomalies on the embedded file.

use std::sync::Arc;

use txn_histories::fixture::{Fixture, Processes};
use txn_histories::{in_one_process_and_in_two, schedules};
use txn_redb::RedbStore;

schedules!(in_one_process_and_in_two);

/// Opens the store in a temporary directory.
///
/// The directory is removed at the end of this function. The open file stays usable.
async fn fixture(processes: Processes) -> Fixture {
    let directory = tempfile::tempdir().expect("a directory");
    let store = RedbStore::open(directory.path().join("anomalies.redb")).expect("opens");
    Fixture::open(Arc::new(store), "anomalies", "items", processes).await
}
