//! Handlers that block their threads, and events that kill their processes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use txn_core::store::MemoryStore;
use txn_fixtures::process::Process;
use txn_outbox::{Delivery, Failure, Heartbeat, ProcessorConfig};

use crate::scenarios::{Desk, PATIENCE, World, orders, until, until_dead};

const LEASE: Duration = Duration::from_secs(1);

fn world() -> World {
    World { store: Arc::new(MemoryStore::new()), name: "test".to_owned(), lease: LEASE }
}

/// The default heartbeat of applications.
fn config(world: &World) -> ProcessorConfig {
    world.config().with_heartbeat(Heartbeat::OwnThread)
}

/// The handler sleeps without awaiting on each of two threads.
///
/// The sleep is longer than a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocking_handlers_still_handle_their_events() {
    let world = world();
    let desk = world.desk().await;
    let handled = desk.handler();
    let began: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
    let seen = began.clone();
    let handler = move |delivery: Delivery| {
        let (handled, began) = (handled.clone(), began.clone());
        async move {
            *began.lock().expect("sound").entry(delivery.event().id.clone()).or_default() += 1;
            std::thread::sleep(LEASE * 3 / 2);
            handled(delivery).await
        }
    };
    let keys = ["a", "b", "c", "d", "e", "f"];
    for key in keys {
        desk.place(key, 1).await;
    }
    let processor = desk.outbox.start(config(&world), orders(handler)).await.expect("starts");
    for key in keys {
        desk.seen(key, &[1]).await;
    }
    let figures = processor.figures();
    assert_eq!((figures.failed, figures.set_aside, figures.stalled), (0, 0, 0), "{figures:?}");
    assert!(figures.blocked >= 1, "no block was reported");
    let began = seen.lock().expect("sound").clone();
    assert!(began.len() == keys.len() && began.values().all(|times| *times == 1), "{began:?}");
    assert!(processor.stop(PATIENCE).await);
}

/// The handler blocks its thread forever.
///
/// The block counts as a failure, and another process continues with the shard.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn shard_of_a_stuck_handler_moves_to_another_process() {
    let world = world();
    let desk = world.desk().await;
    desk.place("a", -1).await;
    desk.place("a", 2).await;
    let (release, released) = mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let handler = move |_: Delivery| {
        let released = released.clone();
        async move {
            // Blocks until the test ends.
            let _ = released.lock().expect("sound").recv();
            Ok::<_, Failure>(())
        }
    };
    let blocks = config(&world).with_limit(Duration::from_millis(100)).with_max_failures(1);
    let blocked = desk.outbox.start(blocks, orders(handler)).await.expect("starts");
    let letter = until_dead(&*desk.outbox.source()).await;
    assert!(letter.error.contains("blocked its thread"), "{}", letter.error);
    until(|| blocked.figures().stalled == 1).await;
    // The process does not take the shard again: the next event would wait for the blocking
    // handler.
    let other = world.desk().await.start(config(&world)).await;
    desk.seen("a", &[2]).await;
    assert!(other.stop(PATIENCE).await);
    drop(release);
    assert!(blocked.stop(PATIENCE).await);
}

/// A process that handles events until a negative one, and is killed.
async fn killed_over(world: &World) {
    let process = Process::new();
    process
        .run(async {
            let desk: Desk = world.desk().await;
            let handled = desk.handler();
            let (hangs, mut hung) = tokio::sync::mpsc::unbounded_channel();
            let handler = move |delivery: Delivery| {
                let (handled, hangs) = (handled.clone(), hangs.clone());
                async move {
                    if delivery.event().payload::<i64>()? < 0 {
                        let _ = hangs.send(());
                        std::future::pending::<()>().await;
                    }
                    handled(delivery).await
                }
            };
            let processor = desk.outbox.start(world.config(), orders(handler)).await;
            hung.recv().await.expect("it is handled");
            std::mem::forget((processor.expect("starts"), desk));
        })
        .await;
    drop(process);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_that_kills_processes_becomes_a_dead_letter() {
    let world = world();
    let desk = world.desk().await;
    desk.place("poison", -1).await;
    desk.place("poison", 2).await;
    // Two noted starts, and the first start, which is not noted.
    for _ in 0..3 {
        desk.place("sound", 1).await;
        killed_over(&world).await;
    }
    let processor = desk.start(world.config()).await;
    let letter = until_dead(&*desk.outbox.source()).await;
    assert_eq!((letter.event.queue.key(), letter.event.sequence), ("poison", 1));
    assert!(letter.error.contains("started 2 times without an end"), "{}", letter.error);
    desk.seen("poison", &[2]).await;
    desk.seen("sound", &[1, 1, 1]).await;
    assert_eq!(processor.figures().set_aside, 1);
    assert!(processor.stop(PATIENCE).await);
}
