//! Events in the documents of their queues, or in own documents.

use super::*;

/// The number of events, more than a queue's document contains.
const EVENTS: i64 = 24;

/// Too many bytes for a queue's document.
const LARGE: usize = 5_000;

/// Whether the payload of this number has too many bytes.
fn is_large(number: i64) -> bool {
    number % 3 == 0
}

async fn place(desk: &Desk, key: &str, number: i64) {
    let text = "x".repeat(if is_large(number) { LARGE } else { 10 });
    let payload = json!({"number": number, "text": text});
    desk.domain
        .transact::<_, OutboxError, _>(async |tx| {
            desk.outbox.emit(tx, "orders", key, &payload).await
        })
        .await
        .expect("emitted");
}

/// Appends each number to the log. Negative numbers fail while the desk is not forgiving.
fn topics(desk: &Desk) -> Topics {
    let state = (desk.log.clone(), desk.forgiving.clone());
    let append = async |state: &(Collection<Typed<Value>>, Arc<AtomicBool>),
                        tx: &Transaction,
                        event: &Event| {
        let (payload, key): (Value, _) = (event.payload()?, event.queue.key());
        let number = payload["number"].as_i64().expect("a number");
        if number < 0 && !state.1.load(Ordering::Acquire) {
            return Err(Failure::permanent(std::io::Error::other("it is negative")));
        }
        let found = tx.get(&state.0, key).await?;
        let mut seen = found.unwrap_or_else(|| json!({"seen": []}));
        seen["seen"].as_array_mut().expect("a list").push(json!(number));
        Ok(tx.put(&state.0, key, &seen)?)
    };
    Topics::new().with_transaction("orders", state, append)
}

/// The positions of a queue's events with documents of their own.
async fn own_documents(desk: &Desk, key: &str) -> Vec<i64> {
    let name = desk.domain.collection_name("outbox");
    let raw = desk.domain.collection::<txn_core::Raw>(&name).await.expect("opens");
    let ids = (1..=2 * EVENTS).map(|at| format!("event:orders/{at}/{key}"));
    let found = desk.domain.reader().verified().get_many(&raw, ids).await.expect("reads");
    (1..).zip(found).filter_map(|(at, document)| document.map(|_| at)).collect()
}

pub(crate) async fn large_events_have_documents_of_their_own(world: &World) {
    let desk = world.desk().await;
    let numbers: Vec<i64> = (1..=EVENTS).collect();
    for number in &numbers {
        place(&desk, "a", *number).await;
    }
    // The queue's document contains the first 16 that are not large.
    let own: Vec<i64> = numbers.iter().copied().filter(|n| is_large(*n)).collect();
    assert_eq!(own_documents(&desk, "a").await, own);
    place(&desk, "a", EVENTS + 1).await;
    assert_eq!(own_documents(&desk, "a").await.last(), Some(&(EVENTS + 1)), "there is no room");
    let (source, queue) = (desk.outbox.source(), QueueName::new("orders", "a").expect("a name"));
    let waiting = source.next(&queue, 100).await.expect("reads");
    let places: Vec<u64> = waiting.iter().map(|event| event.sequence).collect();
    assert_eq!(places, (1..=waiting.len() as u64).collect::<Vec<_>>());
    assert_eq!(source.backlog().await.expect("counts").events, waiting.len() as u64);
    let processor = desk.outbox.start(world.config(), topics(&desk)).await.expect("starts");
    desk.seen("a", &(1..=EVENTS + 1).collect::<Vec<_>>()).await;
    assert_eq!(own_documents(&desk, "a").await, [0; 0]);
    assert!(processor.stop(PATIENCE).await);
}

pub(crate) async fn dead_letters_return_to_their_place(world: &World) {
    let desk = world.desk().await;
    let waits = world.config().with_after_dead_letter(AfterDeadLetter::Wait);
    let processor = desk.outbox.start(waits, topics(&desk)).await.expect("starts");
    let keys = [("small", -1), ("large", -3)];
    for (key, first) in keys {
        for number in [first, 2, 6] {
            place(&desk, key, number).await;
        }
    }
    let source = desk.outbox.source();
    let letters = async || source.dead_letters().await.expect("lists").letters;
    let patience = std::time::Instant::now() + PATIENCE;
    while letters().await.len() < keys.len() {
        assert!(std::time::Instant::now() < patience, "not all are set aside");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for (key, _) in keys {
        assert_eq!(own_documents(&desk, key).await, [3], "the dead letter is no event");
    }
    desk.forgiving.store(true, Ordering::Release);
    for letter in letters().await {
        source.retry(&letter.event.id).await.expect("sent again");
    }
    for (key, first) in keys {
        desk.seen(key, &[first, 2, 6]).await;
        assert_eq!(own_documents(&desk, key).await, [0; 0]);
    }
    assert!(processor.stop(PATIENCE).await);
}
