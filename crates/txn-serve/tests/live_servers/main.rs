//! The gateway in front of real servers.

#[path = "../desk.rs"]
#[expect(dead_code, reason = "the suite without servers uses more of the file")]
mod desk;
mod documents;
mod passing;
mod repetitions;
mod systems;

txn_fixtures::on_both_kinds! {
    documents::clients_write_and_read;
    passing::writes_pass_unless_they_reach_a_collection;
    repetitions::lost_answers_have_one_effect;
    repetitions::drain_answers_running_requests;
    repetitions::purge_finds_expired_answers_alone;
    systems::closures_of_clients_lose_no_update;
    systems::systems_work_over_http;
}
