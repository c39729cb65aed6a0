//! The purge of unused keys.

use std::time::Duration;

use txn_outbox::EventSource;

use super::world::{PATIENCE, World, until_dead};

/// A purged key starts after all earlier positions. Event ids never repeat.
pub(crate) async fn state_of_idle_keys_is_purged(world: &World) {
    let desk = world.desk().await;
    let config = world.config().with_max_failures(1);
    let processor = desk.start(config.clone()).await;
    for number in 1..=3 {
        desk.place("a", number).await;
    }
    desk.place("b", -1).await;
    desk.seen("a", &[1, 2, 3]).await;
    until_dead(&desk.outbox).await;
    assert!(processor.stop(PATIENCE).await);
    desk.place("waits", 1).await;
    let purge = async |age| desk.outbox.purge(age).await.expect("purges").queues;
    assert_eq!(purge(Duration::from_secs(3600)).await, 0, "they were used a moment ago");
    assert_eq!(purge(Duration::ZERO).await, 2, "that in which an event waits stays");
    assert_eq!(purge(Duration::ZERO).await, 0);
    // The known ids belong to earlier events.
    assert_eq!(desk.try_place("a", 4).await.expect("emitted"), "orders/4/a");
    assert_eq!(desk.try_place("new", 1).await.expect("emitted"), "orders/4/new");
    assert_eq!(desk.try_place("waits", 2).await.expect("emitted"), "orders/2/waits");
    desk.forgiving.store(true, std::sync::atomic::Ordering::Release);
    desk.outbox.retry("orders/1/b").await.expect("a dead letter stays");
    let processor = desk.start(config).await;
    desk.seen("a", &[1, 2, 3, 4]).await;
    desk.seen("b", &[-1]).await;
    desk.seen("new", &[1]).await;
    desk.seen("waits", &[1, 2]).await;
    // Purges do not disturb concurrent emits and handlers.
    let numbers: Vec<i64> = (1..=20).collect();
    for number in &numbers {
        desk.place("busy", *number).await;
        purge(Duration::ZERO).await;
    }
    desk.seen("busy", &numbers).await;
    assert!(processor.stop(PATIENCE).await);
    purge(Duration::ZERO).await;
    assert_eq!(desk.outbox.backlog().await.expect("counts").events, 0);
}
