//! HTTP requests after the commit: every scenario on an Elasticsearch and on an OpenSearch.

use std::time::Duration;

use crate::scenarios;

/// Servers of tests are slow and busy.
const LEASE: Duration = Duration::from_secs(15);

scenarios::all_of_http! { txn_fixtures::on_servers }
