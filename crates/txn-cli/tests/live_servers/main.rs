//! The command on real servers, beside a load, with dead processes and planted faults.

mod desk;
mod faults;
#[path = "../owners.rs"]
mod owners;
#[path = "../ran.rs"]
mod ran;
mod verbs;

use txn_testkit::env;

use desk::ServerDesk;

/// Makes a test of each server.
macro_rules! on_each_server {
    ($($module:ident::$case:ident),+ $(,)?) => {
        mod elasticsearch {
            use super::{ServerDesk, env, faults, verbs};
            $(#[test] fn $case() { $module::$case(&ServerDesk::new(&env::elasticsearch_url())); })+
        }

        mod opensearch {
            use super::{ServerDesk, env, faults, verbs};
            $(#[test] fn $case() { $module::$case(&ServerDesk::new(&env::opensearch_url())); })+
        }
    };
}

on_each_server! {
    verbs::sound_domain_is_well_beside_a_load,
    verbs::unapplied_commit_is_found_and_recovered,
    verbs::dead_owner_without_record_is_aborted,
    verbs::live_transaction_is_aborted_by_hand,
    verbs::systems_are_operated,
    faults::rogue_write_is_named_by_status,
    faults::faults_of_indices_are_found_and_mended,
    faults::template_is_found_if_it_spoils_a_partition,
    faults::missing_partition_is_explained,
    faults::orphan_partition_is_found_and_deleted,
    faults::deleted_participant_is_named_by_status,
    faults::missing_domain_is_told_from_a_silent_server,
}
