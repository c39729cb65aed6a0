//! A short kill soak of each system.
//!
//! The soak runs on every version of every server.
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

macro_rules! soaks {
    ($server:ident, $url:ident: $($name:ident $system:ident,)*) => {
        mod $server {
            use super::*;

            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    soak(System::$system, &env::$url()).await;
                }
            )*
        }
    };
}

txn_fixtures::on_alternate_servers! { soaks, every version:
    [
        requests_outlive_killed_processors Requests,
        events_outlive_killed_processors Outbox,
    ]
    [
        locks_outlive_killed_holders Locks,
    ]
}
