//! The named anomalies on real servers, by two processes, and what searches promise.

use txn_fixtures::fixture::Fixture as Server;
use txn_histories::anomalies::searches::Searches;
use txn_histories::fixture::{Fixture, Processes};
use txn_histories::{anomalies, schedules};
use txn_testkit::env;

/// Runs a schedule in a domain of its own.
macro_rules! run {
    ($url:expr, $family:ident::$name:ident) => {
        let server = Server::at(&$url).await;
        let fixture = fixture(&server).await;
        Box::pin(anomalies::$family::$name(&fixture)).await;
        fixture.close().await;
        server.clear().await;
    };
}

macro_rules! on_servers {
    ($($family:ident::$name:ident;)*) => {
        mod elasticsearch {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    run!(env::elasticsearch_url(), $family::$name);
                }
            )*
        }
        mod opensearch {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    run!(env::opensearch_url(), $family::$name);
                }
            )*
        }
    };
}

schedules!(on_servers);

/// Elasticsearch 7 speaks the same protocol: the schedules that would tell a difference.
mod elasticsearch7 {
    use super::*;

    macro_rules! some {
        ($($family:ident::$name:ident;)*) => {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                run!(env::elasticsearch7_url(), $family::$name);
            }
        )*};
    }

    some! {
        writes::p4_lost_update;
        reads::a_commit_that_is_not_applied_is_read;
        skews::g2_item_write_skew;
        skews::g2_item_write_skew_through_absent_documents;
        lifetimes::a_document_that_is_deleted_and_inserted_again;
        locks::three_that_lock_in_a_circle;
    }
}

/// Runs a schedule with searches, on an index that is refreshed only on demand.
macro_rules! searches {
    ($($name:ident;)*) => {
        mod searches_on_elasticsearch {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    let server = Server::at(&env::elasticsearch_url()).await;
                    searching(&server, async |fixture, search| {
                        anomalies::searches::$name(fixture, search).await;
                    }).await;
                    server.clear().await;
                }
            )*
        }
        mod searches_on_opensearch {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    let server = Server::at(&env::opensearch_url()).await;
                    searching(&server, async |fixture, search| {
                        anomalies::searches::$name(fixture, search).await;
                    }).await;
                    server.clear().await;
                }
            )*
        }
    };
}

searches! {
    a_search_sees_only_what_was_committed;
    a_search_may_miss_what_was_just_committed;
    a_phantom_is_possible_and_a_guard_prevents_it;
    a_placeholder_is_hidden_by_the_alias;
}

async fn fixture(server: &Server) -> Fixture {
    open(server, &server.name("items")).await
}

async fn open(server: &Server, index: &str) -> Fixture {
    Fixture::open(server.store(), server.domain_name(), index, Processes::Two).await
}

async fn searching(server: &Server, schedule: impl AsyncFn(&Fixture, &Searches<'_>)) {
    let index = server.name("items");
    server.plain.make(&index, &Searches::index_body()).await;
    let fixture = open(server, &index).await;
    schedule(&fixture, &Searches::new(&server.plain, &index)).await;
    fixture.close().await;
}
