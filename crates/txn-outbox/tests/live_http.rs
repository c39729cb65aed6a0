//! HTTP requests after the commit: all scenarios on Elasticsearch and OpenSearch.

use std::time::Duration;

use crate::scenarios;

/// Long, because test servers are slow and busy.
const LEASE: Duration = Duration::from_secs(15);

scenarios::all_of_http! { txn_fixtures::on_servers }
