//! Events that are not due yet.

use std::time::Duration;

use txn_lock::instance::wall_ms;
use txn_outbox::{EventSource, OutboxError};

use super::world::{PATIENCE, World};

/// A timer is not handled early. It delays the later events of its key, and no other key.
pub(crate) async fn timer_is_not_handled_before_its_time(world: &World) {
    let desk = world.desk().await;
    let processor = desk.start(world.config()).await;
    let due_ms = wall_ms(&desk.domain) + 1_500;
    let emit = desk.domain.transact::<_, OutboxError, _>(async |tx| {
        desk.outbox.emit_not_before(tx, "orders", "timer", &1, due_ms).await?;
        desk.outbox.emit(tx, "orders", "timer", &2).await?;
        desk.outbox.emit_not_before(tx, "orders", "past", &3, 1).await?;
        desk.outbox.emit(tx, "orders", "other", &4).await
    });
    emit.await.expect("emitted");
    desk.seen("past", &[3]).await;
    desk.seen("other", &[4]).await;
    let reader = desk.domain.reader().verified();
    let early = reader.get(&desk.log, "timer").await.expect("reads");
    // The check is worthless if the timer is due by now.
    assert!(early.is_none() || wall_ms(&desk.domain) >= due_ms, "{early:?}");
    let backlog = desk.outbox.source().backlog().await.expect("counts");
    if wall_ms(&desk.domain) < due_ms {
        assert_eq!((backlog.events, backlog.lag_ms(wall_ms(&desk.domain))), (2, 0));
    }
    desk.seen("timer", &[1, 2]).await;
    assert!(wall_ms(&desk.domain) >= due_ms, "it was handled early");
    assert!(processor.figures().longest_lag_ms < 60_000);
    assert!(processor.stop(PATIENCE).await);
}

/// A processor that starts later finds the timer.
pub(crate) async fn timer_survives_its_processor(world: &World) {
    let desk = world.desk().await;
    let due_ms = wall_ms(&desk.domain) + 1_000;
    let processor = desk.start(world.config()).await;
    let emit = desk.domain.transact::<_, OutboxError, _>(async |tx| {
        desk.outbox.emit_not_before(tx, "orders", "timer", &1, due_ms).await
    });
    emit.await.expect("emitted");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(processor.stop(PATIENCE).await);
    let processor = desk.start(world.config()).await;
    desk.seen("timer", &[1]).await;
    assert!(wall_ms(&desk.domain) >= due_ms, "it was handled early");
    assert!(processor.stop(PATIENCE).await);
}
