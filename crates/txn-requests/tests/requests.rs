//! Every scenario on the store in memory and on one file.

mod scenarios;

use std::sync::Arc;

use scenarios::World;
use txn_core::store::MemoryStore;
use txn_redb::RedbStore;

/// What a store in this process is far away from.
const LEASE: std::time::Duration = std::time::Duration::from_secs(1);

macro_rules! on_both {
    ($($name:ident;)*) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let store = std::sync::Arc::new(super::MemoryStore::new());
                let world = super::World { store, name: "test".to_owned(), lease: super::LEASE };
                Box::pin(super::scenarios::$name(&world)).await;
            })*
        }
        mod redb {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let directory = tempfile::tempdir().expect("a directory");
                let store = super::RedbStore::open(directory.path().join("requests.redb"));
                let store: super::Arc<dyn txn_core::store::Store> = super::Arc::new(store.expect("opens"));
                let world = super::World { store, name: "test".to_owned(), lease: super::LEASE };
                Box::pin(super::scenarios::$name(&world)).await;
            })*
        }
    };
}

on_both! {
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
