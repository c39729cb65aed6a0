//! Every scenario on the store in memory and on one file.

mod scenarios;

use std::time::Duration;

/// What a store in this process is far away from, also where other work takes the machine for seconds.
const LEASE: Duration = Duration::from_secs(10);

scenarios::all! { txn_fixtures::in_process }
