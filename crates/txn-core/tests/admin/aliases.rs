//! Collections opened by an alias, and aliases that move.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use txn_core::store::{CollectionIdentity, Layer, MemoryStore, Store, StoreError};
use txn_core::{Collection, Config, Domain, Error, ErrorKind, Raw};

/// Counts the requests that resolve a name.
#[derive(Debug, Default)]
struct Asked {
    inner: MemoryStore,
    count: AtomicUsize,
}

#[async_trait]
impl Layer for Asked {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn identify(&self, name: &str) -> Result<CollectionIdentity, StoreError> {
        self.count.fetch_add(1, SeqCst);
        self.inner.identify(name).await
    }
}

async fn open(lease: Duration) -> (Arc<Asked>, Domain, Collection<Raw>) {
    let store = Arc::new(Asked::default());
    let config = Config::default().with_janitor_interval(None).with_lease(lease);
    let domain = Domain::open_or_create(store.clone(), "shop", config).await.expect("opens");
    for name in ["stock-1", "stock-2"] {
        domain.create_collection::<Raw>(name, None).await.expect("creates");
    }
    store.inner.add_alias("stock", "stock-1").await.expect("added");
    let stock = domain.collection::<Raw>("stock").await.expect("opens");
    (store, domain, stock)
}

async fn put(domain: &Domain, stock: &Collection<Raw>) -> Result<(), Error> {
    domain
        .transact(async |tx| {
            tx.put(stock, "a", &Raw::new("{}"))?;
            tx.put(stock, "b", &Raw::new("{}"))
        })
        .await
}

fn assert_moved(error: &Error, to: &str) {
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    for words in ["the alias \"stock\"", to, "open the collection again"] {
        assert!(error.to_string().contains(words), "{words} in {error}");
    }
}

#[tokio::test]
async fn moved_alias_is_refused_until_reopened() {
    let (store, domain, stock) = open(Duration::from_millis(20)).await;
    put(&domain, &stock).await.expect("writes");
    store.inner.add_alias("stock", "stock-2").await.expect("moved");
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert_moved(&put(&domain, &stock).await.expect_err("moved"), "stock-2");
    let read = domain.transact(async |tx| tx.get(&stock, "a").await).await;
    assert_moved(&read.expect_err("moved"), "stock-2");
    let tx = domain.begin(&txn_core::Options::default()).expect("begins");
    tx.put(&stock, "a", &Raw::new("{}")).expect("buffered");
    assert_moved(&tx.commit().await.expect_err("moved"), "stock-2");

    let again = domain.collection::<Raw>("stock").await.expect("opens");
    put(&domain, &again).await.expect("writes to the other collection");
    assert_moved(&put(&domain, &stock).await.expect_err("the old handle is refused"), "stock-2");
    // The alias moves back to the collection that the first handle opened.
    store.inner.add_alias("stock", "stock-1").await.expect("moved");
    tokio::time::sleep(Duration::from_millis(30)).await;
    put(&domain, &stock).await.expect("the alias names the first collection again");
    assert_moved(&put(&domain, &again).await.expect_err("moved"), "stock-1");
}

#[tokio::test]
async fn alias_is_resolved_once_per_lease() {
    let (store, domain, stock) = open(Duration::from_secs(10)).await;
    for _ in 0..10 {
        put(&domain, &stock).await.expect("written");
    }
    assert_eq!(store.count.load(SeqCst), 0, "the lease since the opening has not expired");
    let (store, domain, stock) = open(Duration::from_millis(20)).await;
    put(&domain, &stock).await.expect("written");
    let own = domain.collection::<Raw>("stock-2").await.expect("opens");
    tokio::time::sleep(Duration::from_millis(30)).await;
    let before = store.count.load(SeqCst);
    for _ in 0..10 {
        put(&domain, &own).await.expect("written");
    }
    assert_eq!(store.count.load(SeqCst), before, "the collection's own name is no alias");
    put(&domain, &stock).await.expect("written");
    assert_eq!(store.count.load(SeqCst), before + 1);
}
