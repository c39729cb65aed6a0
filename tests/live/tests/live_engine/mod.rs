//! Transactions on real servers. Every scenario is written once and runs on each of them.

mod atomic;
mod content;
mod cost;
mod crash;
mod past;
mod refused;
mod stuck;

txn_fixtures::everywhere! {
    atomic::transfers_over_2_and_20_documents;
    atomic::insert_delete_and_insert_again;
    atomic::a_request_that_is_sent_again_has_one_effect;
    atomic::read_only_transactions;
    content::acknowledged_as_applied_or_searchable;
    content::routing_is_kept;
    content::a_collection_opened_by_an_alias;
    content::a_strict_mapping;
    content::documents_without_reserved_fields;
    content::values_keep_their_bytes;
    cost::one_document_is_one_conditional_write;
    cost::many_documents_are_three_round_trips;
    cost::what_is_remembered_costs_a_round_trip_less;
    cost::inserts;
    cost::reads;
    past::moments_show_each_transaction_whole;
    refused::collections_that_are_not_there_or_not_ours;
    refused::ids_that_cannot_be;
    refused::a_document_that_violates_the_mapping;
    refused::a_term_that_cannot_be_indexed;
    stuck::a_mapping_that_changes_between_commit_and_apply;
    atomic::a_hot_pair_under_many_writers_loses_nothing;
    atomic::locked_reads_prevent_write_skew;
    crash::a_transfer_whose_coordinator_dies;
    crash::a_move_with_routing_whose_coordinator_dies;
}
