//! The named anomalies and guarantees of searches on servers.
//!
//! The tests use two processes.

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

/// Declares the tests of the schedules on one kind of server.
macro_rules! on_server {
    ($server:ident, $url:ident: $($family:ident::$name:ident;)*) => {
        mod $server {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    run!(env::$url(), $family::$name);
                }
            )*
        }
    };
}

/// Declares the tests of the schedules on alternating servers.
///
/// The schedules test the engine.
macro_rules! on_servers {
    ($($schedules:tt)*) => {
        txn_fixtures::in_turn! { on_server: $($schedules)* }
    };
}

schedules!(on_servers);

/// Declares the tests of the searches on one server.
///
/// The schedules have searches.
///
/// The index of such a schedule is refreshed only on demand.
macro_rules! searches_on_server {
    ($server:ident, $url:ident: $($name:ident;)*) => {
        mod $server {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    let server = Server::at(&env::$url()).await;
                    searching(&server, async |fixture, search| {
                        anomalies::searches::$name(fixture, search).await;
                    }).await;
                    server.clear().await;
                }
            )*
        }
    };
}

macro_rules! searches {
    ($($schedules:tt)*) => {
        searches_on_server! { searches_elasticsearch8, elasticsearch_url: $($schedules)* }
        searches_on_server! { searches_opensearch3, opensearch_url: $($schedules)* }
        mod searches_matrix {
            use super::*;
            searches_on_server! { searches_elasticsearch7, elasticsearch7_url: $($schedules)* }
            searches_on_server! { searches_elasticsearch9, elasticsearch9_url: $($schedules)* }
            searches_on_server! { searches_opensearch2, opensearch2_url: $($schedules)* }
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
