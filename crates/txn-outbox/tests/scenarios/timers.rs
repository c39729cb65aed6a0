//! Events that are not due yet.

use std::sync::Arc;
use std::time::Duration;

use txn_lock::instance::wall_ms;
use txn_outbox::{EventSource, OutboxError};
use txn_sim::CountingStore;

use super::world::{PATIENCE, World, until};

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

/// Polls read no timer of the far future.
///
/// Due events do not wait for such a timer.
pub(crate) async fn far_timers_are_not_read(world: &World) {
    let counting = Arc::new(CountingStore::new(world.store.clone()));
    let world = World { store: counting.clone(), name: world.name.clone(), lease: world.lease };
    let desk = world.desk().await;
    let far_ms = wall_ms(&desk.domain) + 86_400_000;
    let timers: Vec<String> = (0..300).map(|at| format!("timer-{at}")).collect();
    for keys in timers.chunks(100) {
        let emit = desk.domain.transact::<_, OutboxError, _>(async |tx| {
            for key in keys {
                desk.outbox.emit_not_before(tx, "orders", key, &0, far_ms).await?;
            }
            Ok(())
        });
        emit.await.expect("emitted");
    }
    // A timer of the far future, and one that follows a due event of its key.
    let emit = desk.domain.transact::<_, OutboxError, _>(async |tx| {
        desk.outbox.emit_not_before(tx, "orders", "never", &0, far_ms + 3_000 * 86_400_000).await?;
        desk.outbox.emit(tx, "orders", "mixed", &1).await?;
        desk.outbox.emit_not_before(tx, "orders", "mixed", &2, far_ms).await
    });
    emit.await.expect("emitted");
    let report = desk.domain.barrier(PATIENCE).await.expect("looks");
    report.into_result().expect("all is applied");
    let processor = desk.start(world.config()).await;
    desk.seen("mixed", &[1]).await;
    desk.place("due", 7).await;
    desk.seen("due", &[7]).await;
    let before = counting.counts();
    until(|| counting.counts().since(before).scan >= 40).await;
    let polls = counting.counts().since(before);
    let documents = polls.documents_read + polls.documents_scanned;
    assert!(documents < 20 * polls.scan, "{polls}");
    let backlog = desk.outbox.source().backlog().await.expect("counts");
    assert_eq!((backlog.events, backlog.lag_ms(wall_ms(&desk.domain))), (302, 0));
    assert!(processor.stop(PATIENCE).await);
}
