//! Every scenario on an Elasticsearch and on an OpenSearch.

mod scenarios;

use std::time::Duration;

/// Servers of tests are slow and busy.
const LEASE: Duration = Duration::from_secs(15);

txn_fixtures::on_servers! {
    events_commit_with_their_transaction_or_not_at_all;
    a_queue_keeps_the_order_of_the_commits;
    a_commit_wakes_the_processors_of_its_process;
    one_event_may_change_several_documents_and_emit_more;
    what_keeps_failing_is_set_aside_and_its_queue_goes_on;
    what_keeps_failing_is_set_aside_and_its_queue_waits;
    a_full_queue_refuses;
    a_newer_format_is_refused_by_name;
    shards_are_shared_out_and_taken_over;
    a_static_processor_takes_its_own_shards_only;
    whoever_is_killed_each_event_is_handled_once;
    a_paused_processor_does_nothing_twice;
    effects_elsewhere_are_fenced;
}
