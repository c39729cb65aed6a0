//! The gateway in front of real servers.

#[path = "../desk.rs"]
#[expect(dead_code, reason = "the suite without servers uses more of the file")]
mod desk;
mod documents;
mod passing;
mod repetitions;

txn_fixtures::on_both_kinds! {
    documents::bulk_is_atomic_and_visible_to_plain_clients;
    documents::conditions_and_partial_updates_hold;
    documents::client_computes_between_read_and_commit;
    passing::other_indices_are_written_as_on_the_servers;
    passing::no_write_reaches_a_collection_by_another_name;
    repetitions::lost_answers_have_one_effect;
    repetitions::drain_answers_running_requests;
}
