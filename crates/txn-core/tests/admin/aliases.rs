//! Collections opened by an alias, and aliases that move.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use txn_core::store::{MemoryStore, Store};
use txn_core::{Collection, Domain, Error, ErrorKind, Raw};
use txn_sim::{Call, Scripted, Step};

use crate::support::{Setup, World, config};

/// Opens the alias `stock` of a collection. The counter counts the requests that resolve a name.
async fn open(lease: Duration) -> (Arc<AtomicUsize>, World<Raw>, Collection<Raw>) {
    let memory = Arc::new(MemoryStore::new());
    let (counting, asked) = (Scripted::new(memory.clone()), Arc::new(AtomicUsize::new(0)));
    let count = asked.clone();
    counting.before(move |call| {
        count.fetch_add(usize::from(matches!(call, Call::Identify(_))), SeqCst);
        Step::pass()
    });
    let setup = Setup::on(memory).below(Arc::new(counting)).config(config().with_lease(lease));
    let world: World<Raw> = setup.collections(&["stock-1", "stock-2"]).open().await;
    world.memory.add_alias("stock", "stock-1").await.expect("added");
    let stock = world.domain.collection::<Raw>("stock").await.expect("opens");
    (asked, world, stock)
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
    let (_, World { memory, domain, .. }, stock) = open(Duration::from_millis(20)).await;
    put(&domain, &stock).await.expect("writes");
    memory.add_alias("stock", "stock-2").await.expect("moved");
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
    memory.add_alias("stock", "stock-1").await.expect("moved");
    tokio::time::sleep(Duration::from_millis(30)).await;
    put(&domain, &stock).await.expect("the alias names the first collection again");
    assert_moved(&put(&domain, &again).await.expect_err("moved"), "stock-1");
}

#[tokio::test]
async fn alias_is_resolved_once_per_lease() {
    let (asked, World { domain, .. }, stock) = open(Duration::from_secs(10)).await;
    for _ in 0..10 {
        put(&domain, &stock).await.expect("written");
    }
    assert_eq!(asked.load(SeqCst), 0, "the lease since the opening has not expired");
    let (asked, World { domain, .. }, stock) = open(Duration::from_millis(20)).await;
    put(&domain, &stock).await.expect("written");
    let own = domain.collection::<Raw>("stock-2").await.expect("opens");
    tokio::time::sleep(Duration::from_millis(30)).await;
    let before = asked.load(SeqCst);
    for _ in 0..10 {
        put(&domain, &own).await.expect("written");
    }
    assert_eq!(asked.load(SeqCst), before, "the collection's own name is no alias");
    put(&domain, &stock).await.expect("written");
    assert_eq!(asked.load(SeqCst), before + 1);
}
