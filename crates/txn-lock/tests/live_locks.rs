//! Every scenario on an Elasticsearch and on an OpenSearch.

mod scenarios;

use scenarios::World;
use txn_fixtures::fixture::Fixture;

/// Servers of tests are slow and busy.
const LEASE: std::time::Duration = std::time::Duration::from_secs(20);

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
    one_at_a_time;
    tokens_grow_over_unlock_break_and_delete;
    a_timeout_says_who_holds_it;
    a_lock_is_held_beyond_its_lease;
    what_a_killed_process_held_is_taken_over;
    a_paused_holder_finds_out_and_its_effects_are_refused;
    a_newer_format_is_refused_by_name;
    a_shutdown_gives_everything_back;
}
