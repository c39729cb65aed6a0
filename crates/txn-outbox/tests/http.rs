//! HTTP requests after the commit: every scenario on the store in memory and on one file.

use std::time::Duration;

use crate::scenarios;

/// What a store in this process is far away from.
const LEASE: Duration = Duration::from_secs(1);

scenarios::all_of_http! { txn_fixtures::in_process }

#[tokio::test]
async fn a_result_is_kept_once_the_store_answers() {
    scenarios::a_result_is_kept_once_the_store_answers().await;
}

#[tokio::test]
async fn a_result_that_is_not_taken_for_long_is_left_out() {
    scenarios::a_result_that_is_not_taken_for_long_is_left_out().await;
}
