//! The named anomalies on the store in memory.

use std::sync::Arc;

use txn_core::store::MemoryStore;
use txn_isolation::ground::{Ground, Processes};
use txn_isolation::{anomalies, schedules};

macro_rules! on_memory {
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

schedules!(on_memory);

async fn ground(processes: Processes) -> Ground {
    Ground::open(Arc::new(MemoryStore::new()), "anomalies", "items", processes).await
}
