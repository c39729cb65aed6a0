//! Events on a faulty store, with processors that start and stop. Handlers that hang, panic and
//! fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use txn_core::ErrorKind::{Conflict, Unavailable, Unknown};
use txn_core::store::MemoryStore;
use txn_fixtures::process::Process;
use txn_outbox::{Delivery, Failure, OutboxConfig, OutboxError};
use txn_sim::{FaultPlan, FaultStore};

use crate::scenarios::{self, Desk, PATIENCE, World, orders, until};

/// Shorter than some answers of the store, so that leases expire.
const LEASE: Duration = Duration::from_secs(1);

fn world(store: Arc<dyn txn_core::store::Store>) -> World {
    World { store, name: "test".to_owned(), lease: LEASE }
}

/// Increments the counter of a key. Returns whether the commit is known.
async fn count(desk: &Desk, key: &str) -> Option<bool> {
    match desk.try_count(key).await {
        Ok(()) => Some(true),
        Err(OutboxError::Engine(error)) if error.kind() == Unknown => None,
        Err(OutboxError::Engine(error)) if matches!(error.kind(), Conflict | Unavailable) => {
            Some(false)
        }
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_event_is_handled_once_on_a_faulty_store() {
    for seed in 0..4_u64 {
        let store = Arc::new(FaultStore::new(Arc::new(MemoryStore::new()), FaultPlan::rough(seed)));
        store.set_enabled(false);
        let world = Arc::new(world(store.clone()));
        let keys = ["a", "b", "c"];
        let desk = Arc::new(world.desk().await);
        let workers = [world.desk().await, world.desk().await];
        store.set_enabled(true);
        let mut tasks = tokio::task::JoinSet::new();
        for (at, worker) in workers.into_iter().enumerate() {
            let world = world.clone();
            tasks.spawn(async move {
                // Stops processors in the middle of their work, while other processors continue.
                for round in 0..4_u64 {
                    let started =
                        worker.outbox.start(world.config(), orders(worker.handler())).await;
                    let moment = 100_000 + (seed * 977 + at as u64 * 331 + round * 7_919) % 400_000;
                    tokio::time::sleep(Duration::from_micros(moment)).await;
                    drop(started);
                }
            });
        }
        let (least, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        for key in keys {
            let (desk, least, most) = (desk.clone(), least.clone(), most.clone());
            tasks.spawn(async move {
                for _ in 0..8 {
                    let committed = count(&desk, key).await;
                    least.fetch_add(u64::from(committed == Some(true)), Ordering::Relaxed);
                    most.fetch_add(u64::from(committed != Some(false)), Ordering::Relaxed);
                }
            });
        }
        tasks.join_all().await;
        store.set_enabled(false);
        store.settle().await;
        assert!(store.injected().total() > 0);
        let processor = desk.start(world.config()).await;
        let mut all = 0;
        for key in keys {
            // The counter has the number of commits.
            let committed = desk.counted(key).await;
            all += u64::try_from(committed).expect("few");
            desk.seen(key, &(1..=committed).collect::<Vec<_>>()).await;
        }
        let (least, most) = (least.load(Ordering::Relaxed), most.load(Ordering::Relaxed));
        assert!((least..=most).contains(&all), "seed {seed}: {least} <= {all} <= {most}");
        assert!(desk.outbox.source().dead_letters().await.expect("lists").letters.is_empty());
        assert!(processor.stop(PATIENCE).await);
    }
}

/// Each call takes some time, so each kill hits another step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_processor_is_killed_at_each_of_its_steps() {
    let slow = FaultPlan::none(7).with_delay(1.0, Duration::from_millis(4));
    let store = Arc::new(FaultStore::new(Arc::new(MemoryStore::new()), slow));
    let moments: Vec<u64> = (0..12).map(|at| 2_000 + at * 5_000).collect();
    Box::pin(scenarios::kills_at(&world(store), &moments)).await;
}

/// A processor that is paused at each step wakes after the takeover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_processor_is_paused_at_each_of_its_steps() {
    let slow = FaultPlan::none(11).with_delay(1.0, Duration::from_millis(4));
    let world = world(Arc::new(FaultStore::new(Arc::new(MemoryStore::new()), slow)));
    let desk = world.desk().await;
    let process = Process::new();
    let paused = process.run(async { world.desk().await }).await;
    let mut number = 0;
    for at in 0..8 {
        for _ in 0..3 {
            number += 1;
            desk.place("a", number).await;
        }
        let processor = process
            .run(async {
                let processor = paused.start(world.config()).await;
                until(|| !processor.shards().is_empty()).await;
                tokio::time::sleep(Duration::from_millis(1 + at * 7)).await;
                processor
            })
            .await;
        let other = desk.start(world.config()).await;
        let all: Vec<i64> = (1..=number).collect();
        desk.seen("a", &all).await;
        assert!(other.stop(PATIENCE).await);
        process.run(async { processor.stop(PATIENCE).await }).await;
        desk.seen("a", &all).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hangs_and_panics_are_failures_and_outages_are_not() {
    let world = world(Arc::new(MemoryStore::new()));
    let desk = world.desk().await;
    for key in ["hangs", "panics", "hopeless", "down", "sound"] {
        desk.place(key, 1).await;
    }
    let handled = desk.handler();
    let downs = Arc::new(AtomicU64::new(0));
    let seen = downs.clone();
    let handler = move |delivery: Delivery| {
        let (handled, downs) = (handled.clone(), downs.clone());
        async move {
            match delivery.event().queue.key() {
                "hangs" => std::future::pending().await,
                "panics" => panic!("by purpose"),
                "hopeless" => Err(Failure::permanent("it makes no sense")),
                "down" if downs.fetch_add(1, Ordering::Relaxed) < 5 => {
                    Err(Failure::transient("it is down"))
                }
                _ => handled(delivery).await,
            }
        }
    };
    let config = world
        .config()
        .with_max_failures(2)
        .with_limit(Duration::from_millis(100))
        .with_first_pause(Duration::from_millis(10));
    let processor = desk.outbox.start(config, orders(handler)).await.expect("starts");
    desk.seen("sound", &[1]).await;
    desk.seen("down", &[1]).await;
    assert!(seen.load(Ordering::Relaxed) > 5);
    until(|| processor.figures().set_aside == 3).await;
    let dead = desk.outbox.source().dead_letters().await.expect("lists").letters;
    let told: Vec<(&str, u32, &str)> = dead
        .iter()
        .map(|dead| (dead.event.queue.key(), dead.event.failures, dead.error.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("hangs", 2, "the handler did not end within 100ms"),
            ("hopeless", 1, "it makes no sense"),
            ("panics", 2, "the handler panicked: by purpose"),
        ]
    );
    assert!(processor.stop(PATIENCE).await);
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused() {
    let world = world(Arc::new(MemoryStore::new()));
    let desk = world.desk().await;
    for config in [
        world.config().with_lease(Duration::ZERO),
        world.config().with_delay(Duration::ZERO),
        world.config().with_concurrency(0),
        world.config().with_max_failures(0),
        world.config().with_balance(Some(Duration::ZERO)),
    ] {
        let refused = desk.outbox.start(config, orders(desk.handler())).await.expect_err("refused");
        assert!(matches!(refused, OutboxError::InvalidConfig(_)), "{refused}");
    }
    for config in [
        OutboxConfig::default().with_shards(0),
        OutboxConfig::default().with_shards(257),
        OutboxConfig::default().with_max_backlog(0),
    ] {
        let refused = txn_outbox::Outbox::open(&desk.domain, config).await.expect_err("refused");
        assert!(matches!(refused, OutboxError::InvalidConfig(_)), "{refused}");
    }
    let small = txn_outbox::Outbox::open(&desk.domain, OutboxConfig::default().with_max_payload(4));
    let small = small.await.expect("opens");
    let refused =
        desk.domain.transact(async |tx| small.emit(tx, "orders", "a", "long").await).await;
    assert!(matches!(refused, Err(OutboxError::InvalidPayload { .. })), "{refused:?}");
}
