//! Days whose partition the store refuses to create.
//!
//! A server refuses at its limit of shards, or if an index template is wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use txn_core::clock::{Clock, SystemClock};
use txn_core::store::{
    CollectionInfo, CollectionSpec, Layer, MemoryStore, Role, Store, StoreError, StoreErrorKind,
};
use txn_core::{Collection, Config, Domain, Error, ErrorKind, Options, Raw};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Refuses to create partitions while `full`, and counts the requests.
#[derive(Debug, Default)]
struct FullStore {
    inner: MemoryStore,
    full: AtomicBool,
    asked: AtomicUsize,
    /// The number of partitions in creation. Each takes 50 ms.
    making: AtomicUsize,
}

#[async_trait]
impl Layer for FullStore {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn open_collection(&self, spec: &CollectionSpec) -> Result<CollectionInfo, StoreError> {
        if spec.role == Role::Partition && self.full.load(Ordering::Relaxed) {
            self.asked.fetch_add(1, Ordering::Relaxed);
            return Err(StoreError::new(StoreErrorKind::Misconfigured, "there are no more shards"));
        }
        self.making.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(50)).await;
        let opened = self.inner.open_collection(spec).await;
        self.making.fetch_sub(1, Ordering::Relaxed);
        opened
    }
}

/// The system clock, plus an offset.
#[derive(Debug, Default)]
struct Later {
    system: SystemClock,
    by: Mutex<Duration>,
}

impl Later {
    fn advance(&self, by: Duration) {
        *self.by.lock() += by;
    }
}

#[async_trait]
impl Clock for Later {
    fn wall(&self) -> Duration {
        self.system.wall() + *self.by.lock()
    }

    fn monotonic(&self) -> Duration {
        self.system.monotonic() + *self.by.lock()
    }

    async fn sleep(&self, duration: Duration) {
        self.system.sleep(duration).await;
    }
}

/// Opens a domain with a collection on a new store.
async fn open() -> (Arc<FullStore>, Arc<Later>, Domain, Collection<Raw>) {
    let (store, clock) = (Arc::new(FullStore::default()), Arc::new(Later::default()));
    let config = Config::default().with_janitor_interval(None).with_clock(clock.clone());
    let domain = Domain::open_or_create(store.clone(), "shop", config).await.expect("creates");
    let items = domain.create_collection("items", None).await.expect("opens");
    (store, clock, domain, items)
}

/// Writes two documents in one transaction, with a record.
async fn write(domain: &Domain, items: &Collection<Raw>) -> Result<(), Error> {
    domain
        .transact(async |tx| {
            tx.put(items, "a", &Raw::new("{}"))?;
            tx.put(items, "b", &Raw::new("{}"))
        })
        .await
}

#[tokio::test(start_paused = true)]
async fn refused_partition_is_tried_once_per_pause() {
    let (store, clock, domain, items) = open().await;
    write(&domain, &items).await.expect("writes");

    store.full.store(true, Ordering::Relaxed);
    clock.advance(2 * DAY);
    let asked = async |transactions: usize| {
        let all = (0..transactions).map(|_| write(&domain, &items));
        for result in futures::future::join_all(all).await {
            let error = result.expect_err("there is no partition");
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
            assert!(error.to_string().contains("no more shards"), "{error}");
        }
        store.asked.load(Ordering::Relaxed)
    };
    assert_eq!(asked(40).await, 1);
    // The pauses grow: 1 s, 2 s, 4 s.
    clock.advance(Duration::from_millis(1_500));
    assert_eq!(asked(40).await, 2);
    clock.advance(Duration::from_millis(1_500));
    assert_eq!(asked(40).await, 2);
    clock.advance(Duration::from_millis(1_000));
    assert_eq!(asked(40).await, 3);

    store.full.store(false, Ordering::Relaxed);
    clock.advance(Duration::from_secs(5));
    write(&domain, &items).await.expect("the partition is made at the next try");
}

/// A caller waits for a partition and is never polled again.
#[tokio::test(start_paused = true)]
async fn unpolled_caller_does_not_block_a_partition() {
    let (store, clock, domain, items) = open().await;

    clock.advance(2 * DAY);
    let tid = domain.begin(&Options::default()).expect("begins").tid();
    let mut unpolled = Box::pin(domain.outcome(tid));
    while store.making.load(Ordering::Relaxed) == 0 {
        assert!(futures::poll!(&mut unpolled).is_pending());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let other = write(&domain, &items);
    let other = tokio::time::timeout(Duration::from_secs(60), other).await;
    other.expect("waits for no other caller").expect("writes");
    unpolled.await.expect("is answered");
}

#[tokio::test(start_paused = true)]
async fn domain_opens_before_tomorrow_has_a_partition() {
    let store = Arc::new(FullStore::default());
    let config = || Config::default().with_janitor_interval(None);
    let clock = Arc::new(Later::default());
    let earlier = Domain::open_or_create(store.clone(), "shop", config()).await.expect("creates");
    assert!(earlier.shutdown(Duration::from_secs(60)).await);
    store.full.store(true, Ordering::Relaxed);
    // The first process created the partitions of two days. On the second day, tomorrow has none.
    clock.advance(DAY);
    let domain = Domain::open(store.clone(), "shop", config().with_clock(clock)).await;
    let domain = domain.expect("today has a partition");
    let items = domain.create_collection("items", None).await.expect("opens");
    write(&domain, &items).await.expect("writes");
    assert_eq!(store.asked.load(Ordering::Relaxed), 1, "tomorrow's partition was tried");
}
