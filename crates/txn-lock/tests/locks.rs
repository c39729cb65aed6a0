//! Every scenario on the store in memory and on one file.

mod scenarios;

use std::sync::Arc;

use scenarios::World;
use txn_core::store::MemoryStore;
use txn_redb::RedbStore;

/// What a store in this process is far away from, also where other work takes the machine for seconds.
const LEASE: std::time::Duration = std::time::Duration::from_secs(10);

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
                let store = super::RedbStore::open(directory.path().join("locks.redb"));
                let store: super::Arc<dyn txn_core::store::Store> = super::Arc::new(store.expect("opens"));
                let world = super::World { store, name: "test".to_owned(), lease: super::LEASE };
                Box::pin(super::scenarios::$name(&world)).await;
            })*
        }
    };
}

on_both! {
    one_at_a_time;
    tokens_grow_over_unlock_break_and_delete;
    a_timeout_says_who_holds_it;
    a_lock_is_held_beyond_its_lease;
    what_a_killed_process_held_is_taken_over;
    a_paused_holder_finds_out_and_its_effects_are_refused;
    a_newer_format_is_refused_by_name;
    a_shutdown_gives_everything_back;
}
