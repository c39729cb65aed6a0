//! HTTP requests after the commit: every scenario on an Elasticsearch and on an OpenSearch.

mod scenarios;

use std::time::Duration;

/// Servers of tests are slow and busy.
const LEASE: Duration = Duration::from_secs(15);

txn_fixtures::on_servers! {
    a_request_is_performed_after_its_commit_and_never_without;
    whoever_is_killed_calls_again_with_the_same_key;
    answers_are_final_or_tried_again;
    a_longer_pause_is_kept_if_an_answer_asks_for_it;
    only_what_is_listed_is_called;
    dead_letters_are_sent_again;
    a_name_is_looked_up_once_for_each_call;
    secrets_are_told_to_the_receiver_only;
    slow_and_endless_answers_are_bounded;
    so_many_calls_are_under_way_and_no_more;
    newer_requests_and_unknown_topics_wait;
}
