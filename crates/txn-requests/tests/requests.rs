//! Every scenario on the store in memory and on one file.

use std::time::Duration;

use crate::scenarios;

/// What a store in this process is far away from.
const LEASE: Duration = Duration::from_secs(1);

scenarios::all! { txn_fixtures::in_process }
