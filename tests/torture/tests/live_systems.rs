//! A short kill soak of each system, on every version of every server.
//!
//! `cargo xtask torture` runs longer soaks.

use std::path::PathBuf;
use std::time::Duration;

use txn_testkit::env;
use txn_torture::systems::{Plan, System};

/// Long enough that each worker is killed and paused a few times.
const SPAN: Duration = Duration::from_secs(30);

async fn soak(system: System, url: &str) {
    let binary = PathBuf::from(std::env!("CARGO_BIN_EXE_txn-torture"));
    let report = Plan::new(system, url, SPAN, binary).run().await.expect("runs");
    println!("{system:?}\n{report}");
    assert!(report.violations.is_empty(), "{report}");
}

macro_rules! on_servers {
    ($($server:ident, $url:ident;)*) => {$(
        mod $server {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn requests_outlive_killed_processors() {
                soak(System::Requests, &env::$url()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn locks_outlive_killed_holders() {
                soak(System::Locks, &env::$url()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn events_outlive_killed_processors() {
                soak(System::Outbox, &env::$url()).await;
            }
        }
    )*};
}

on_servers! {
    elasticsearch8, elasticsearch_url;
    opensearch3, opensearch_url;
}

/// `cargo xtask test` leaves these tests out, and `cargo xtask live` runs them.
mod matrix {
    use super::*;

    on_servers! {
        elasticsearch7, elasticsearch7_url;
        elasticsearch9, elasticsearch9_url;
        opensearch2, opensearch2_url;
    }
}
