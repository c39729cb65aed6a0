//! The named anomalies on the embedded file.

use std::sync::Arc;

use txn_isolation::ground::{Ground, Processes};
use txn_isolation::{anomalies, schedules};
use txn_redb::RedbStore;

macro_rules! on_a_file {
    ($($family:ident::$name:ident;)*) => {
        mod one_process {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    let ground = super::ground(super::Processes::One).await;
                    Box::pin(super::anomalies::$family::$name(&ground)).await;
                    ground.close().await;
                }
            )*
        }
        mod two_processes {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    let ground = super::ground(super::Processes::Two).await;
                    Box::pin(super::anomalies::$family::$name(&ground)).await;
                    ground.close().await;
                }
            )*
        }
    };
}

schedules!(on_a_file);

/// The directory is gone when the test ends; the file stays usable as long as it is open.
async fn ground(processes: Processes) -> Ground {
    let directory = tempfile::tempdir().expect("a directory");
    let store = RedbStore::open(directory.path().join("anomalies.redb")).expect("opens");
    Ground::open(Arc::new(store), "anomalies", "items", processes).await
}
