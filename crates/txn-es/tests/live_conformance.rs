//! The conformance suite against running servers. Servers that the environment does not name are
//! left out.
#![cfg(feature = "live")]

mod live;

use std::sync::Arc;
use std::time::Duration;

use txn_core::store::Store;
use txn_core::testing::{Options, conformance};

async fn conforms(variable: &str) {
    let Some(store) = live::store(variable).await else { return };
    let store: Arc<dyn Store> = Arc::new(store);
    let options = Options::new(live::unique("conf")).with_patience(Duration::from_secs(300));
    conformance(store, options).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elasticsearch_8_conforms() {
    conforms(live::ELASTICSEARCH).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elasticsearch_7_conforms() {
    conforms(live::ELASTICSEARCH7).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opensearch_conforms() {
    conforms(live::OPENSEARCH).await;
}
