//! Transactions on real servers. Every scenario runs on each server.

mod atomic;
mod content;
mod cost;
mod crash;
mod past;
mod refused;
mod stuck;

txn_fixtures::on_both_kinds! {
    atomic::transfers_over_2_and_20_documents;
    atomic::insert_delete_and_insert_again;
    atomic::repeated_request_has_one_effect;
    atomic::read_only_transactions;
    content::acknowledged_as_applied_or_searchable;
    content::routing_is_kept;
    content::collection_is_opened_by_an_alias;
    content::strict_mapping_is_supported;
    content::documents_need_no_reserved_fields;
    content::values_keep_their_bytes;
    cost::one_document_is_one_conditional_write;
    cost::many_documents_are_three_round_trips;
    cost::cached_contents_save_a_round_trip;
    cost::inserts;
    cost::reads;
    past::timestamps_show_whole_transactions;
    refused::missing_and_foreign_collections_are_refused;
    refused::impossible_ids_are_refused;
    refused::document_that_violates_the_mapping_is_refused;
    refused::term_that_cannot_be_indexed_is_refused;
    stuck::mapping_changed_before_the_apply_is_reported;
    atomic::hot_pair_with_many_writers_loses_nothing;
    atomic::locked_reads_prevent_write_skew;
    crash::transfer_survives_a_dead_coordinator;
    crash::routed_move_survives_a_dead_coordinator;
}
