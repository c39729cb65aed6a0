//! Servers below a path prefix.

use std::sync::Arc;

use txn_core::store::Store;
use txn_es::{EsConfig, EsStore};
use txn_fixtures::fixture::{Fixture, PATIENCE};
use txn_fixtures::ledger::{Ledger, Plan};
use txn_testkit::proxy::{Manners, Proxy};

use super::proxy;

const TRANSFERS: u64 = 50;

/// Every request of a load, its janitors, and a domain's whole life.
pub(crate) async fn domain_below_a_path_prefix(fixture: &Fixture) {
    let proxy = proxy(fixture).await;
    proxy.set_manners(Manners::default().with_path_prefix("/team/search"));
    let at_root = EsStore::connect(EsConfig::from_url(&proxy.url()).expect("an address")).await;
    at_root.expect_err("nothing is there");
    let coordinators = vec![below(&proxy).await, below(&proxy).await];
    let domain = fixture.name("below");
    let plan = Plan::new(&domain).with_accounts(40).with_config(Fixture::config()).with_seed(11);
    let ledger = Ledger::open(plan, coordinators, below(&proxy).await).await;
    let enough = ledger.acknowledges(TRANSFERS);
    let bounded = tokio::time::timeout(PATIENCE, enough);
    ledger.run(3, async { bounded.await.expect("transfers go on") }).await;
    let (wrong, counts) = (ledger.verify().await, ledger.counts());
    assert_eq!(wrong, Vec::<String>::new(), "{counts:?}");
    ledger.close().await;
    fixture.drop_domain(&domain).await;
    proxy.shutdown().await;
}

async fn below(proxy: &Proxy) -> Arc<dyn Store> {
    let address = format!("{}/team/search/", proxy.url());
    let config = EsConfig::from_url(&address).expect("an address");
    Arc::new(EsStore::connect(config).await.expect("a server that answers"))
}
