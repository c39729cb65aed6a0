//! Panics in observers, stores, closures and codecs.
//!
//! A panic fails at most its own transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use txn_core::event::{Event, Observer};
use txn_core::store::Write;
use txn_core::{Codec, DecodeError, Error, ErrorKind, LockMode};
use txn_sim::Fate;

use crate::support::script::{is_commit, is_lock, writes};
use crate::support::{Item, Shop, config};

#[derive(Debug)]
struct Bomb;

impl Observer for Bomb {
    fn on_event(&self, event: &Event) {
        panic!("the observer panics at {event:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn observer_panic_changes_nothing() {
    let config = config().with_observer(Some(Arc::new(Bomb)));
    let shop = Shop::open_with(&["a", "b"], config).await;
    shop.set(&shop.domain, &["a", "b"], 2).await.expect("commits");
    shop.set(&shop.domain, &["a", "b"], 3).await.expect("commits");
    shop.drained().await;
    assert_eq!((shop.value("a").await, shop.value("b").await), (Some(3), Some(3)));
}

/// Sets two documents on a store that panics after a matching write.
///
/// The panic occurs once. `shared` switches request batching.
async fn panic_at(which: fn(&Write) -> bool, shared: bool) -> (Shop, Error) {
    let config = config().with_request_batching(Some(shared));
    let shop = Shop::open_with(&["a", "b"], config).await;
    let armed = AtomicBool::new(true);
    shop.store.play(move |write| match which(write) && armed.swap(false, Ordering::SeqCst) {
        true => Fate::Panic,
        false => Fate::Pass,
    });
    let error = shop.set(&shop.domain, &["a", "b"], 2).await.expect_err("the store panicked");
    (shop, error)
}

#[tokio::test(start_paused = true)]
async fn store_panic_at_a_lock_fails_only_its_transaction() {
    for shared in [false, true] {
        let (shop, error) = panic_at(is_lock, shared).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        shop.set(&shop.domain, &["a", "b"], 3).await.expect("the process continues");
        shop.drained().await;
        assert_eq!((shop.value("a").await, shop.value("b").await), (Some(3), Some(3)));
    }
}

#[tokio::test(start_paused = true)]
async fn store_panic_at_the_commit_leaves_it_in_doubt() {
    for shared in [false, true] {
        let (shop, error) = panic_at(is_commit, shared).await;
        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        shop.set(&shop.domain, &["a", "b"], 3).await.expect("the process continues");
        shop.drained().await;
        assert_eq!((shop.value("a").await, shop.value("b").await), (Some(3), Some(3)));
    }
}

#[tokio::test(start_paused = true)]
async fn store_panic_at_the_apply_keeps_no_locks() {
    let shop = Shop::open(&["a", "b"]).await;
    let armed = AtomicBool::new(true);
    shop.store.play(move |write| {
        let applies = writes(write, "\"n\":2") && !write.require_alias && !is_lock(write);
        match applies && armed.swap(false, Ordering::SeqCst) {
            true => Fate::Panic,
            false => Fate::Pass,
        }
    });
    shop.set(&shop.domain, &["a", "b"], 2).await.expect("committed");
    shop.set(&shop.domain, &["a", "b"], 3).await.expect("the process continues");
    shop.drained().await;
    assert_eq!((shop.value("a").await, shop.value("b").await), (Some(3), Some(3)));
}

#[tokio::test(start_paused = true)]
async fn closure_panic_releases_its_locks() {
    let shop = Shop::open(&["a", "b"]).await;
    let (domain, items) = (shop.domain.clone(), shop.items.clone());
    let panicked = tokio::spawn(async move {
        let options = txn_core::Options::default().with_lock_mode(LockMode::AtRead);
        let tx = domain.begin(&options).expect("begins");
        let _: Vec<Option<Item>> = tx.get_many(&items, ["a", "b"]).await.expect("reads");
        panic!("the closure panics");
    });
    assert!(panicked.await.is_err());
    shop.set(&shop.domain, &["a", "b"], 3).await.expect("the process continues");
    shop.drained().await;
}

#[derive(Debug)]
struct Panicking;

impl Codec for Panicking {
    type Value = i64;

    fn encode(_: &i64) -> Result<String, serde_json::Error> {
        panic!("the codec panics")
    }

    fn decode(_: &str) -> Result<i64, DecodeError> {
        panic!("the codec panics")
    }
}

#[tokio::test(start_paused = true)]
async fn codec_panic_releases_the_locks() {
    let shop = Shop::open(&["a", "b"]).await;
    let domain = shop.domain.clone();
    let panicked = tokio::spawn(async move {
        let broken = domain.collection::<Panicking>("items").await.expect("opens");
        let options = txn_core::Options::default().with_lock_mode(LockMode::AtRead);
        domain.run::<_, Error, _>(&options, async |tx| tx.get(&broken, "a").await).await
    });
    assert!(panicked.await.is_err());
    shop.set(&shop.domain, &["a", "b"], 3).await.expect("the process continues");
    shop.drained().await;
}

/// The panic ends the heartbeat. The attempt timeout still releases the lock.
#[tokio::test(start_paused = true)]
async fn store_panic_at_a_heartbeat_keeps_no_lock() {
    let shop = Shop::open(&["a"]).await;
    shop.store.play(|write| match writes(write, "\"state\":\"pending\"") {
        true => Fate::Panic,
        false => Fate::Pass,
    });
    let options = txn_core::Options::default().with_lock_mode(LockMode::AtRead);
    let holder = shop.domain.begin(&options).expect("begins");
    holder.get(&shop.items, "a").await.expect("reads");
    tokio::time::sleep(std::time::Duration::from_secs(15)).await;
    shop.store.play(|_| Fate::Pass);
    shop.set(&shop.domain, &["a"], 2).await.expect("the process continues");
    drop(holder);
    shop.drained().await;
}
