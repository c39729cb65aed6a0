//! All scenarios on Elasticsearch and on OpenSearch.

use std::time::Duration;

use crate::scenarios;

/// Long, because test servers are slow and busy.
const LEASE: Duration = Duration::from_secs(15);

scenarios::all! { txn_fixtures::on_servers }
