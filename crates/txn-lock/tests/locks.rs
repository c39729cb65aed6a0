//! All scenarios on the memory store and on a file.

use std::time::Duration;

use crate::scenarios;

/// Far beyond the delays of a local store.
///
/// Other work may occupy the machine for seconds.
const LEASE: Duration = Duration::from_secs(10);

scenarios::all! { txn_fixtures::in_process }
