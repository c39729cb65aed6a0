//! Days whose partition the store refuses to create.
//!
//! A server refuses at its limit of shards, or if an index template is wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use txn_core::store::{MemoryStore, Role, StoreError, StoreErrorKind};
use txn_core::{Collection, Domain, Error, ErrorKind, Raw};
use txn_sim::{Call, Scripted, Step};

use crate::support::{Calendar, Setup, World, config, fresh_tid};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Whether the store is full, and the requests for new collections.
#[derive(Debug, Default)]
struct Shards {
    full: AtomicBool,
    /// The refused partitions.
    asked: AtomicUsize,
    /// The number of collections in creation. Each takes 50 ms.
    making: AtomicUsize,
}

/// A store that refuses to create partitions while it is full.
fn limited(memory: Arc<MemoryStore>) -> (Arc<Scripted>, Arc<Shards>) {
    let (store, shards) = (Scripted::new(memory), Arc::new(Shards::default()));
    let (of_calls, of_answers) = (shards.clone(), shards.clone());
    store.before(move |call| {
        let Call::OpenCollection(spec) = call else { return Step::pass() };
        if spec.role == Role::Partition && of_calls.full.load(Ordering::Relaxed) {
            of_calls.asked.fetch_add(1, Ordering::Relaxed);
            let kind = StoreErrorKind::Misconfigured;
            return Step::pass().fail(StoreError::new(kind, "there are no more shards"));
        }
        of_calls.making.fetch_add(1, Ordering::Relaxed);
        Step::delay(Duration::from_millis(50))
    });
    store.after(move |call| {
        if matches!(call, Call::OpenCollection(_)) {
            of_answers.making.fetch_sub(1, Ordering::Relaxed);
        }
        Step::pass()
    });
    (Arc::new(store), shards)
}

/// Opens a domain with a collection on a new store.
async fn open() -> (Arc<Shards>, Arc<Calendar>, Domain, Collection<Raw>) {
    let memory = Arc::new(MemoryStore::new());
    let ((store, shards), clock) = (limited(memory.clone()), Arc::new(Calendar::default()));
    let setup = Setup::on(memory).below(store).config(config().with_clock(clock.clone()));
    let World { domain, items, .. } = setup.open().await;
    (shards, clock, domain, items)
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
    let (shards, clock, domain, items) = open().await;
    write(&domain, &items).await.expect("writes");

    shards.full.store(true, Ordering::Relaxed);
    clock.advance(2 * DAY);
    let asked = async |transactions: usize| {
        let all = (0..transactions).map(|_| write(&domain, &items));
        for result in futures::future::join_all(all).await {
            let error = result.expect_err("there is no partition");
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
            assert!(error.to_string().contains("no more shards"), "{error}");
        }
        shards.asked.load(Ordering::Relaxed)
    };
    assert_eq!(asked(40).await, 1);
    // The pauses grow: 1 s, 2 s, 4 s.
    clock.advance(Duration::from_millis(1_500));
    assert_eq!(asked(40).await, 2);
    clock.advance(Duration::from_millis(1_500));
    assert_eq!(asked(40).await, 2);
    clock.advance(Duration::from_millis(1_000));
    assert_eq!(asked(40).await, 3);

    shards.full.store(false, Ordering::Relaxed);
    clock.advance(Duration::from_secs(5));
    write(&domain, &items).await.expect("the partition is made at the next try");
}

/// A caller waits for a partition and is never polled again.
#[tokio::test(start_paused = true)]
async fn unpolled_caller_does_not_block_a_partition() {
    let (shards, clock, domain, items) = open().await;

    clock.advance(2 * DAY);
    let tid = fresh_tid(&domain);
    let mut unpolled = Box::pin(domain.outcome(tid));
    while shards.making.load(Ordering::Relaxed) == 0 {
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
    let (store, shards) = limited(Arc::default());
    let clock = Arc::new(Calendar::default());
    let earlier = Domain::open_or_create(store.clone(), "shop", config()).await.expect("creates");
    assert!(earlier.shutdown(Duration::from_secs(60)).await);
    shards.full.store(true, Ordering::Relaxed);
    // The first process created the partitions of two days. On the second day, tomorrow has none.
    clock.advance(DAY);
    let domain = Domain::open(store.clone(), "shop", config().with_clock(clock)).await;
    let domain = domain.expect("today has a partition");
    let items = domain.create_collection("items", None).await.expect("opens");
    write(&domain, &items).await.expect("writes");
    assert_eq!(shards.asked.load(Ordering::Relaxed), 1, "tomorrow's partition was tried");
}
