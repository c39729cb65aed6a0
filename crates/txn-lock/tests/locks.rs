//! Every scenario on the store in memory and on one file.

mod scenarios;

use std::time::Duration;

/// What a store in this process is far away from, also where other work takes the machine for seconds.
const LEASE: Duration = Duration::from_secs(10);

txn_fixtures::in_process! {
    one_at_a_time;
    tokens_grow_over_unlock_break_and_delete;
    a_timeout_says_who_holds_it;
    a_lock_is_held_beyond_its_lease;
    what_a_killed_process_held_is_taken_over;
    a_paused_holder_finds_out_and_its_effects_are_refused;
    a_newer_format_is_refused_by_name;
    a_shutdown_gives_everything_back;
    a_shutdown_ends_what_is_held_at_once;
}
