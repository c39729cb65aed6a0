//! Events that a commit passes on.
//!
//! The commit passes the events to the processor of its own process.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use txn_core::store::MemoryStore;
use txn_core::{Collection, Transaction, Typed};
use txn_outbox::{Event, EventSource, Processor, ProcessorConfig, Topics};

use crate::scenarios::{Desk, PATIENCE, SHARDS, Watched, World, until};

fn world() -> World {
    World {
        store: Arc::new(MemoryStore::new()),
        name: "shop".to_owned(),
        lease: Duration::from_secs(5),
    }
}

/// A processor that polls rarely.
///
/// Thus only commits of the own process wake the processor.
async fn start(desk: &Desk, world: &World, source: Arc<dyn EventSource>) -> Processor {
    let append = async |log: &Collection<Typed<Value>>, tx: &Transaction, event: &Event| {
        let (number, key): (i64, _) = (event.payload()?, event.queue.key());
        let found = tx.get(log, key).await?;
        let mut seen = found.unwrap_or_else(|| json!({"seen": []}));
        seen["seen"].as_array_mut().expect("a list").push(json!(number));
        Ok(tx.put(log, key, &seen)?)
    };
    let topics = Topics::new().with_transaction("orders", desk.log.clone(), append);
    let config: ProcessorConfig = world.config().with_delay(Duration::from_secs(3_600));
    let processor = Processor::start(&desk.domain, source, config, topics).await.expect("starts");
    until(|| processor.shards().len() == usize::from(SHARDS)).await;
    processor
}

/// No read precedes the transaction that takes an event.
///
/// The transaction proves that the event waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_the_own_process_are_not_read() {
    let world = world();
    let desk = world.desk().await;
    let source = Watched::new(desk.outbox.source(), 0);
    let processor = start(&desk, &world, source.clone()).await;
    let events = 60;
    for number in 0..events {
        let key = format!("k{number}");
        desk.place(&key, number).await;
        desk.seen(&key, &[number]).await;
    }
    // A poll may find a queue before its commit passes it on.
    let reads = source.reads.load(Ordering::Acquire);
    assert!(reads < 20, "{reads} reads for {events} events");
    assert!(processor.stop(PATIENCE).await);
}

/// The second event of each key reaches another process.
///
/// This process does not know the first event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn earlier_events_of_another_process_come_first() {
    let world = world();
    let (desk, elsewhere) = (world.desk().await, world.desk().await);
    let processor = start(&desk, &world, desk.outbox.source()).await;
    for number in 0..20 {
        let key = format!("k{number}");
        elsewhere.place(&key, 1).await;
        desk.place(&key, 2).await;
        desk.seen(&key, &[1, 2]).await;
    }
    assert!(processor.stop(PATIENCE).await);
}
