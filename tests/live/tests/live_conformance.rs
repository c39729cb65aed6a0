//! The conformance suite on running servers.

use std::sync::Arc;
use std::time::Duration;

use txn_es::{EsConfig, EsStore};
use txn_store::conformance::{self, Options};

async fn conforms(url: &str) {
    let config = EsConfig::from_url(url).expect("an address");
    // Every request of the suite needs an answer, even on a busy machine.
    let config = config.with_request_timeout(Duration::from_secs(60));
    let store = EsStore::connect(config).await.expect("a server that answers");
    let options =
        Options::new(txn_fixtures::unique("conf")).with_patience(Duration::from_secs(300));
    conformance::run(Arc::new(store), options).await;
}

macro_rules! on_servers {
    ($($server:ident, $url:ident;)*) => {$(
        mod $server {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn conforms() {
                super::conforms(&txn_testkit::env::$url()).await;
            }
        }
    )*};
}

on_servers! {
    elasticsearch7, elasticsearch7_url;
    elasticsearch8, elasticsearch_url;
    elasticsearch9, elasticsearch9_url;
    opensearch2, opensearch2_url;
    opensearch3, opensearch_url;
}
