//! The command on real servers, beside a load.
//!
//! Some processes are dead, and some faults are planted.

mod desk;
mod disks;
mod faults;
#[path = "../owners.rs"]
mod owners;
#[path = "../ran.rs"]
mod ran;
mod verbs;

use txn_testkit::env;

use desk::ServerDesk;

/// Makes the tests of one server, in a module.
macro_rules! on_server {
    ($server:ident, $url:ident: $($module:ident::$case:ident,)+) => {
        mod $server {
            use super::{ServerDesk, env, faults, verbs};
            $(#[test] fn $case() { $module::$case(&ServerDesk::new(&env::$url())); })+
        }
    };
}

txn_fixtures::on_alternate_servers! { on_server:
    [
        verbs::sound_domain_is_well_beside_a_load,
        verbs::unapplied_commit_is_found_and_recovered,
        verbs::dead_owner_without_record_is_aborted,
        faults::faults_of_indices_are_found_and_mended,
        faults::template_is_found_if_it_spoils_a_partition,
        faults::deleted_participant_is_named_by_status,
    ]
    [
        verbs::live_transaction_is_aborted_by_hand,
        verbs::systems_are_operated,
        faults::rogue_write_is_named_by_status,
        faults::missing_partition_is_explained,
        faults::orphan_partition_is_found_and_deleted,
        faults::missing_domain_is_told_from_a_silent_server,
    ]
}
