//! Every scenario on an Elasticsearch and on an OpenSearch.

mod scenarios;

use scenarios::World;
use txn_fixtures::fixture::Fixture;

/// Servers of tests are slow and busy.
const LEASE: std::time::Duration = std::time::Duration::from_secs(15);

macro_rules! on_servers {
    ($($name:ident;)*) => {
        mod on {
            $(pub(super) async fn $name(fixture: &super::Fixture) {
                let name = fixture.domain_name().to_owned();
                let world = super::World { store: fixture.store(), name, lease: super::LEASE };
                Box::pin(super::scenarios::$name(&world)).await;
            })*
        }
        txn_fixtures::everywhere! { $(on::$name;)* }
    };
}

on_servers! {
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
}
