//! A PostgreSQL of its own as the source of events: the effects in memory, and on servers.

mod in_memory {
    use std::time::Duration;

    use crate::scenarios;

    /// What a store in this process is far away from.
    const LEASE: Duration = Duration::from_secs(1);

    txn_fixtures::in_process! {
        rows_commit_with_their_transaction_or_not_at_all;
        commits_out_of_order_lose_nothing;
        rows_outlive_killed_processors;
        rows_that_keep_failing_are_set_aside;
        a_smaller_token_is_refused;
        a_commit_in_the_background_is_no_failure;
        a_database_that_counts_anew_is_named;
        looks_are_bounded;
        what_is_kept_of_drained_rows_is_purged;
        a_bad_row_hides_no_other;
        names_are_counted_in_utf8;
        what_the_tables_refuse;
        a_lost_connection_is_made_again;
        application_needs_to_insert_three_columns;
        pooler_in_transaction_mode_changes_nothing;
        tls_is_used_and_checked;
        huge_payload_blocks_no_key;
        insert_costs_the_same_beside_a_backlog;
    }
}

mod on_servers {
    use std::time::Duration;

    use crate::scenarios;

    /// Servers of tests are slow and busy.
    const LEASE: Duration = Duration::from_secs(15);

    txn_fixtures::on_servers! {
        commits_out_of_order_lose_nothing;
        rows_outlive_killed_processors;
    }
}
