//! The conformance suite against running servers.

use std::sync::Arc;
use std::time::Duration;

use txn_es::{EsConfig, EsStore};
use txn_store::conformance::{self, Options};
use txn_testkit::env;

async fn conforms(url: &str) {
    let config = EsConfig::from_url(url).expect("an address");
    // What it asks for has to be answered, also on a machine that is busy with other things.
    let config = config.with_request_timeout(Duration::from_secs(60));
    let store = EsStore::connect(config).await.expect("a server that answers");
    let options =
        Options::new(txn_fixtures::unique("conf")).with_patience(Duration::from_secs(300));
    conformance::run(Arc::new(store), options).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elasticsearch_8_conforms() {
    conforms(&env::elasticsearch_url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elasticsearch_7_conforms() {
    conforms(&env::elasticsearch7_url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opensearch_conforms() {
    conforms(&env::opensearch_url()).await;
}
