//! Transactions through a proxy that loses, repeats, delays, refuses and cuts, on real servers.

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

/// How long a request may be under way: less than what some are held up for.
const REQUEST: Duration = Duration::from_secs(3);

/// A proxy in front of the server of a fixture.
async fn proxy(fixture: &Fixture) -> Proxy {
    Proxy::start(fixture.plain.url()).await.expect("starts")
}

/// A store that reaches the server through a proxy.
async fn through(proxy: &Proxy) -> Arc<dyn Store> {
    let config = EsConfig::from_url(&proxy.url()).expect("an address");
    let config = config.with_request_timeout(REQUEST);
    Arc::new(EsStore::connect(config).await.expect("a server that answers"))
}

/// The domain of a fixture through a proxy, by a coordinator of its own.
async fn coordinator(fixture: &Fixture, proxy: &Proxy, config: Config) -> Domain {
    fixture.domain_on(through(proxy).await, config).await
}

txn_fixtures::on_both_kinds! {
    rough::transfers_under_rough_faults;
    each_step::every_fault_at_every_step;
    refused::what_was_carried_out_is_refused_and_nobody_answers;
    unknown::a_commit_that_was_carried_out_and_never_answered;
    unknown::a_commit_that_never_arrived;
    unknown::a_commit_that_arrives_after_its_transaction_was_aborted;
    late::an_insert_that_is_repeated_after_the_document_was_deleted;
    late::an_apply_that_is_repeated_after_later_transfers;
    ways::domain_below_a_path_prefix;
}
