//! Opening and making domains, and what is found when a part of one was lost.

use std::sync::Arc;

use txn_core::store::{MemoryStore, Store};
use txn_core::{Config, Domain, ErrorKind};

fn config() -> Config {
    Config::default().with_janitor_interval(None)
}

#[tokio::test(start_paused = true)]
async fn a_mistyped_name_makes_no_domain() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let error = Domain::open(store.clone(), "shop", config()).await.expect_err("no registry");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    Domain::create(store.clone(), "shop", config()).await.expect("makes it");
    Domain::create(store.clone(), "shop", config()).await.expect("opens it");
    Domain::open(store.clone(), "shop", config()).await.expect("opens it");
    let error = Domain::open(store.clone(), "shpo", config()).await.expect_err("mistyped");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("shpo"), "{error}");
    Domain::open(store, "shpo", config()).await.expect_err("nothing was made");
}
