//! The named anomalies, as explicit schedules.
//!
//! Each schedule asserts the reads of every session and the final state. The names are those of
//! Adya and of Berenson et al.; the schedules follow their definitions. Sessions that step through
//! a schedule are transactions without retries, so a schedule shows the transaction that is
//! refused. If a guarantee says that every transaction commits, the schedule uses `transact`.

pub mod lifetimes;
pub mod locks;
pub mod reads;
#[cfg(feature = "live")]
pub mod searches;
pub mod skews;
pub mod writes;

/// Calls a macro with the list of all schedules.
///
/// These schedules run on every store.
#[macro_export]
macro_rules! schedules {
    ($run:ident) => {
        $run! {
            writes::g0_dirty_write;
            writes::p4_lost_update;
            writes::p4_lost_update_of_one_that_waits;
            writes::otv_observed_transaction_vanishes;
            reads::g1a_aborted_read;
            reads::g1b_intermediate_read;
            reads::g1c_circular_information_flow;
            reads::g_single_read_skew;
            reads::g_single_read_skew_with_locked_reads;
            reads::own_writes_are_read;
            reads::a_commit_that_is_not_applied_is_read;
            skews::g2_item_write_skew;
            skews::g2_item_write_skew_through_absent_documents;
            skews::g2_item_write_skew_of_locked_reads;
            skews::g2_item_anomaly_of_a_read_only_transaction;
            skews::long_fork;
            skews::g_nonadjacent;
            lifetimes::two_inserts_of_one_id;
            lifetimes::two_inserts_of_one_id_at_once;
            lifetimes::a_deletion_and_an_update;
            lifetimes::a_document_that_is_deleted_and_inserted_again;
            lifetimes::deleted_and_inserted_by_one_transaction;
            locks::two_that_lock_crosswise_step_by_step;
            locks::two_that_lock_crosswise;
            locks::three_that_lock_in_a_circle;
            locks::fifty_that_add_to_one_document;
        }
    };
}

/// Declares the tests of schedules in a module.
///
/// The caller's `async fn fixture(Processes) -> Fixture` makes the fixture.
#[macro_export]
macro_rules! in_processes {
    ($module:ident, $processes:ident: $($family:ident::$name:ident;)*) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    let fixture = super::fixture($crate::fixture::Processes::$processes).await;
                    Box::pin($crate::anomalies::$family::$name(&fixture)).await;
                    fixture.close().await;
                }
            )*
        }
    };
}

/// Declares tests of each schedule, in one process and in two.
///
/// The tests are those of [`in_processes`].
#[macro_export]
macro_rules! in_one_process_and_in_two {
    ($($schedules:tt)*) => {
        $crate::in_processes! { one_process, One: $($schedules)* }
        $crate::in_processes! { two_processes, Two: $($schedules)* }
    };
}
