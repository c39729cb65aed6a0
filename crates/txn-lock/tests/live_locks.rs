//! Every scenario on an Elasticsearch and on an OpenSearch.

mod scenarios;

use std::time::Duration;

/// Servers of tests are slow and busy.
const LEASE: Duration = Duration::from_secs(20);

scenarios::all! { txn_fixtures::on_servers }
