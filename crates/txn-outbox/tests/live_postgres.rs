//! A real PostgreSQL as the source. The effects are in memory, and on servers.

mod in_memory {
    use std::time::Duration;

    use crate::scenarios;

    /// Far beyond the delays of a local store.
    const LEASE: Duration = Duration::from_secs(1);

    txn_fixtures::in_process! {
        rows_commit_atomically_with_their_transaction;
        commits_out_of_order_lose_nothing;
        rows_outlive_killed_processors;
        failing_rows_become_dead_letters;
        smaller_token_is_refused;
        background_commit_is_not_a_failure;
        lost_commits_of_the_database_are_reported;
        polls_are_bounded;
        state_of_drained_keys_is_purged;
        bad_row_hides_no_other_row;
        names_are_counted_in_utf8;
        tables_refuse_invalid_rows;
        lost_connection_is_reopened;
        application_needs_to_insert_three_columns;
        pooler_in_transaction_mode_changes_nothing;
        tls_is_used_and_checked;
        huge_payload_blocks_no_key;
        insert_cost_does_not_grow_with_the_backlog;
    }
}

mod on_servers {
    use std::time::Duration;

    use crate::scenarios;

    /// Long, because test servers are slow and busy.
    const LEASE: Duration = Duration::from_secs(15);

    txn_fixtures::on_servers! {
        commits_out_of_order_lose_nothing;
        rows_outlive_killed_processors;
    }
}
