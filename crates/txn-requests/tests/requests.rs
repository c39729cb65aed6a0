//! Every scenario on the store in memory and on one file.

mod scenarios;

use std::time::Duration;

/// What a store in this process is far away from.
const LEASE: Duration = Duration::from_secs(1);

txn_fixtures::in_process! {
    a_request_goes_through_its_states;
    a_request_under_one_id_happens_once;
    operations_do_what_they_say;
    a_refused_request_rolls_back_with_its_reason;
    what_is_not_committed_is_cancelled_and_what_is_is_reversed;
    what_keeps_failing_is_set_aside;
    requests_are_checked_whole_before_anything_is_written;
    a_newer_format_is_refused_by_name;
    whoever_is_killed_each_request_happens_once;
    a_paused_processor_does_nothing_twice;
    what_a_request_emits_commits_with_it_or_not_at_all;
    what_waits_for_others_holds_up_nobody;
    without_an_outbox_what_emits_is_refused_and_left_to_others;
    what_could_never_be_emitted_is_refused;
    requests_of_the_format_before_are_carried_out;
    whoever_is_killed_a_request_emits_once;
    updates_follow_their_write;
    a_condition_that_fails_leaves_nothing;
    updates_of_a_document_keep_their_order;
    whoever_is_killed_each_update_happens_once;
    a_poisoned_update_concerns_its_own_document;
}
