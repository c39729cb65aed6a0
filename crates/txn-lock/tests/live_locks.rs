//! All scenarios on Elasticsearch and on OpenSearch.

mod scenarios;

use std::time::Duration;

/// Long, because test servers are slow and busy.
const LEASE: Duration = Duration::from_secs(20);

scenarios::all! { txn_fixtures::on_servers }
