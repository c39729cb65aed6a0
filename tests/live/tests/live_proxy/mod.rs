//! Transactions through a proxy with faults, on real servers.
//!
//! The proxy loses, repeats, delays, refuses and cuts.

mod each_step;
mod late;
mod refused;
mod rough;
mod unknown;
mod ways;

use std::sync::Arc;
use std::time::Duration;

use txn_core::store::Store;
use txn_core::{Config, Domain};
use txn_es::{EsConfig, EsStore};
use txn_fixtures::fixture::{Fixture, soon};
use txn_testkit::proxy::Proxy;

/// The timeout of a request: shorter than some holds.
const REQUEST: Duration = Duration::from_secs(3);

/// Returns a proxy in front of the server of a fixture.
async fn proxy(fixture: &Fixture) -> Proxy {
    Proxy::start(fixture.plain.url()).await.expect("starts")
}

/// Returns a store that reaches the server through a proxy.
async fn through(proxy: &Proxy) -> Arc<dyn Store> {
    let config = EsConfig::from_url(&proxy.url()).expect("an address");
    let config = config.with_request_timeout(REQUEST);
    Arc::new(EsStore::connect(config).await.expect("a server that answers"))
}

/// Opens the domain of a fixture through a proxy.
///
/// The domain has a coordinator of its own.
async fn coordinator(fixture: &Fixture, proxy: &Proxy, config: Config) -> Domain {
    fixture.domain_on(through(proxy).await, config).await
}

txn_fixtures::in_turn! { txn_fixtures::on_server:
    rough::transfers_under_rough_faults;
    each_step::every_fault_at_every_step;
    refused::refused_write_before_an_outage_is_in_doubt;
    unknown::unanswered_commit_is_committed;
    unknown::commit_that_never_arrived_is_aborted;
    unknown::commit_arriving_after_an_abort_is_void;
    late::insert_repeated_after_a_deletion_is_harmless;
    late::apply_repeated_after_later_transfers_is_harmless;
    ways::domain_below_a_path_prefix;
}
