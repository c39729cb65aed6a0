//! Hostile handlers, sources and documents. A processor continues with all other queues.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};
use txn_core::store::MemoryStore;
use txn_core::{Collection, Error, Raw, Transaction, Typed};
use txn_outbox::{Delivery, Event, Failure, Outbox, OutboxConfig, OutboxError, Processor, Topics};

use crate::scenarios::{Desk, PATIENCE, SHARDS, Watched, World, numbers, orders, until};

fn world() -> World {
    let store = Arc::new(MemoryStore::new());
    World { store, name: "test".to_owned(), lease: Duration::from_secs(1) }
}

/// A handler outlives its stopped processor.
///
/// The lock of the shard is not released in time. Late writes of the handler fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_that_outlives_the_stop_is_fenced() {
    let world = world();
    let desk = world.desk().await;
    desk.place("a", 1).await;
    let (begun, goes_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (told, answer) = oneshot::channel();
    let (log, told) = (desk.log.clone(), Arc::new(parking_lot::Mutex::new(Some(told))));
    let (begins, waits) = (begun.clone(), goes_on.clone());
    let handler = move |delivery: Delivery| {
        let (log, told) = (log.clone(), told.lock().take());
        let (begins, waits) = (begins.clone(), waits.clone());
        async move {
            tokio::spawn(async move {
                begins.notify_one();
                waits.notified().await;
                let late = delivery.transact::<_, OutboxError, _>(async |tx| {
                    Ok(tx.put(&log, "a", &json!({"seen": [1]}))?)
                });
                let late = late.await;
                let _ = told.map(|told| told.send(late));
            });
            std::future::pending().await
        }
    };
    let processor = desk.outbox.start(world.config(), orders(handler)).await.expect("starts");
    begun.notified().await;
    assert!(!processor.stop(Duration::ZERO).await, "the handler has not ended");
    goes_on.notify_one();
    let late = answer.await.expect("told").expect_err("refused");
    assert!(matches!(late, OutboxError::Lock(_)), "{late}");
    assert!(desk.read("a").await.is_empty());
    // Another process handles the event.
    let other = desk.start(world.config()).await;
    desk.seen("a", &[1]).await;
    assert!(other.stop(PATIENCE).await);
}

/// With one permit, a panic releases the permit, and the queue continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panic_releases_its_queue_and_its_permit() {
    let world = world();
    let desk = world.desk().await;
    desk.place("a", 1).await;
    let source = Watched::new(desk.outbox.source(), 3);
    let config = world.config().with_concurrency(1).with_longest_pause(Duration::from_millis(20));
    let topics = orders(desk.handler());
    let processor = Processor::start(&desk.domain, source.clone(), config, topics).await;
    let processor = processor.expect("starts");
    desk.seen("a", &[1]).await;
    assert_eq!(source.panics.load(Ordering::Acquire), 0);
    desk.place("b", 1).await;
    desk.seen("b", &[1]).await;
    assert!(processor.stop(PATIENCE).await);
}

/// With one permit: a queue with a constant backlog releases the permit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hot_queue_does_not_starve_other_queues() {
    let world = world();
    let desk = world.desk().await;
    let turns = Arc::new(AtomicU64::new(0));
    let (handled, outbox, seen) = (desk.handler(), desk.outbox.clone(), turns.clone());
    let handler = move |delivery: Delivery| {
        let (handled, outbox, seen) = (handled.clone(), outbox.clone(), seen.clone());
        async move {
            if delivery.event().queue.key() != "hot" {
                return handled(delivery).await;
            }
            seen.fetch_add(1, Ordering::Relaxed);
            delivery
                .transact::<_, Failure, _>(async |tx| {
                    Ok(outbox.emit(tx, "orders", "hot", &0).await.map(drop)?)
                })
                .await
        }
    };
    hot_queue_leaves_permits(&world, &desk, orders(handler), &turns).await;
}

/// The same with a handler that takes several events in one transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_of_a_hot_queue_do_not_starve_other_queues() {
    struct State {
        outbox: Outbox,
        log: Collection<Typed<Value>>,
        turns: Arc<AtomicU64>,
    }
    let world = world();
    let desk = world.desk().await;
    let turns = Arc::new(AtomicU64::new(0));
    let state = State { outbox: desk.outbox.clone(), log: desk.log.clone(), turns: turns.clone() };
    let handle = async |state: &State, tx: &Transaction, event: &Event| {
        let key = event.queue.key();
        if key != "hot" {
            return Ok(tx.put(&state.log, key, &json!({"seen": [event.payload::<i64>()?]}))?);
        }
        state.turns.fetch_add(1, Ordering::Relaxed);
        Ok(state.outbox.emit(tx, "orders", "hot", &0).await.map(drop)?)
    };
    let topics = Topics::new().with_transaction("orders", state, handle);
    hot_queue_leaves_permits(&world, &desk, topics, &turns).await;
}

/// Each event of the queue `hot` emits another one. Other queues are handled in the meantime.
async fn hot_queue_leaves_permits(world: &World, desk: &Desk, topics: Topics, turns: &AtomicU64) {
    for _ in 0..10 {
        desk.place("hot", 0).await;
    }
    let config = world.config().with_concurrency(1).with_batch(5);
    let processor = desk.outbox.start(config, topics).await.expect("starts");
    until(|| turns.load(Ordering::Relaxed) > 10).await;
    for key in ["a", "b", "c"] {
        desk.place(key, 1).await;
    }
    for key in ["a", "b", "c"] {
        desk.seen(key, &[1]).await;
    }
    // The hot queue continues, too.
    let before = turns.load(Ordering::Relaxed);
    until(|| turns.load(Ordering::Relaxed) > before + 10).await;
    assert!(processor.stop(PATIENCE).await);
}

/// Pauses of an outage grow up to a bound. Failures do not count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pauses_of_an_outage_grow() {
    let world = world();
    let desk = world.desk().await;
    desk.place("a", 1).await;
    let tries = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let (seen, handled) = (tries.clone(), desk.handler());
    let handler = move |delivery: Delivery| {
        let (seen, handled) = (seen.clone(), handled.clone());
        async move {
            let count = {
                let mut seen = seen.lock();
                seen.push(std::time::Instant::now());
                seen.len()
            };
            match count {
                ..=8 => Err(Failure::transient("it is down")),
                _ => handled(delivery).await,
            }
        }
    };
    let (first, longest) = (Duration::from_millis(20), Duration::from_millis(320));
    let config = world.config().with_first_pause(first).with_longest_pause(longest);
    let config = config.with_max_failures(1);
    let processor = desk.outbox.start(config, orders(handler)).await.expect("starts");
    desk.seen("a", &[1]).await;
    assert_eq!(processor.figures().set_aside, 0);
    let tries = tries.lock().clone();
    let gaps: Vec<Duration> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (at, gap) in (0..).zip(&gaps) {
        // The upper half of a pause is random.
        let least = longest.min(first * (1 << at)) / 2;
        assert!(*gap >= least, "{at}: {gap:?} of {gaps:?}");
    }
    assert!(processor.stop(PATIENCE).await);
}

/// Locks of a newer format block no other shard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newer_lock_does_not_stop_the_balancing() {
    let world = world();
    let desk = world.desk().await;
    let first = desk.start(world.config()).await;
    until(|| first.shards().len() == usize::from(SHARDS)).await;
    assert!(first.stop(PATIENCE).await);
    write_newer(&desk, "locks", "lock:elsewhere/a", "lock", 2).await;
    write_newer(&desk, "locks", "lock:outbox-shard/outbox/orders/00", "lock", 2).await;
    let processor = desk.start(world.config()).await;
    until(|| numbers(&processor) == (1..SHARDS).collect::<BTreeSet<u16>>()).await;
    assert!(processor.stop(PATIENCE).await);
}

/// An emit does not overwrite a queue of a newer format.
///
/// Other queues work.
#[tokio::test]
async fn newer_queue_is_refused_and_kept() {
    let desk = world().desk().await;
    write_newer(&desk, "outbox", "queue:orders/a", "queue", 4).await;
    let error = desk.try_place("a", 1).await.expect_err("newer");
    let newer = |error: &OutboxError, of: &str, is: u32| match error {
        OutboxError::NewerFormat { document, format } => document == of && *format == is,
        _ => false,
    };
    assert!(newer(&error, "queue:orders/a", 4), "{error}");
    desk.place("b", 1).await;
    write_newer(&desk, "outbox", "settings", "settings", 2).await;
    let error = Outbox::open(&desk.domain, OutboxConfig::default()).await.expect_err("newer");
    assert!(newer(&error, "settings", 2), "{error}");
}

async fn write_newer(desk: &Desk, collection: &str, document: &str, kind: &str, format: u32) {
    let raw = desk.domain.collection::<Raw>(&format!("test-{collection}")).await.expect("opens");
    let newer = Raw::new(json!({"kind": kind, "format": format}).to_string());
    desk.domain
        .transact::<_, Error, _>(async |tx| tx.put(&raw, document, &newer))
        .await
        .expect("written");
}
