//! HTTP requests after the commit, on local stores.

use std::time::Duration;

use crate::scenarios;

/// Far beyond the delays of a local store.
const LEASE: Duration = Duration::from_secs(1);

scenarios::all_of_http! { txn_fixtures::in_process }

#[tokio::test]
async fn result_is_stored_after_a_short_outage() {
    scenarios::result_is_stored_after_a_short_outage().await;
}

#[tokio::test]
async fn result_is_left_out_during_a_long_outage() {
    scenarios::result_is_left_out_during_a_long_outage().await;
}
