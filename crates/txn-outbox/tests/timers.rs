//! Timers of the far future, with a clock that the test moves.

use std::sync::Arc;
use std::time::Duration;

use txn_core::Config;
use txn_core::store::MemoryStore;
use txn_fixtures::clock::MovedClock;
use txn_lock::instance::wall_ms;
use txn_outbox::{OutboxConfig, OutboxError};

use crate::scenarios::{PATIENCE, World};

/// A far timer is found once its moment has come.
///
/// The timer is alone, or behind a due event of its key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn far_timer_is_handled_after_its_moment() {
    let store = Arc::new(MemoryStore::new());
    let world = World { store, name: "shop".to_owned(), lease: Duration::from_secs(1) };
    let clock = Arc::new(MovedClock::default());
    let config = Config::default().with_clock(clock.clone());
    let desk = world.desk_of(config, OutboxConfig::default()).await;
    let due_ms = wall_ms(&desk.domain) + 600_000;
    let processor = desk.start(world.config()).await;
    let emit = desk.domain.transact::<_, OutboxError, _>(async |tx| {
        desk.outbox.emit_not_before(tx, "orders", "alone", &1, due_ms).await?;
        desk.outbox.emit(tx, "orders", "behind", &2).await?;
        desk.outbox.emit_not_before(tx, "orders", "behind", &3, due_ms).await?;
        desk.outbox.emit(tx, "orders", "behind", &4).await
    });
    emit.await.expect("emitted");
    desk.seen("behind", &[2]).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(desk.read("alone").await.is_empty(), "it was handled early");
    assert_eq!(desk.read("behind").await, [2]);
    clock.set_ahead_ms(600_000);
    desk.seen("alone", &[1]).await;
    desk.seen("behind", &[2, 3, 4]).await;
    assert!(processor.stop(PATIENCE).await);
}

/// A moment in microseconds is refused.
///
/// Such a moment would stop its key for ever.
#[tokio::test]
async fn moment_beyond_the_longest_delay_is_refused() {
    let store = Arc::new(MemoryStore::new());
    let world = World { store, name: "shop".to_owned(), lease: Duration::from_secs(1) };
    let config = OutboxConfig::default();
    let desk = world.desk_of(Config::default(), config).await;
    let now_ms = wall_ms(&desk.domain);
    let emit = async |not_before_ms: u64| {
        let emit = desk.domain.transact::<_, OutboxError, _>(async |tx| {
            desk.outbox.emit_not_before(tx, "orders", "timer", &1, not_before_ms).await
        });
        emit.await
    };
    for not_before_ms in [u64::MAX, now_ms * 1_000, now_ms + 3_651 * 86_400_000] {
        let refused = emit(not_before_ms).await.expect_err("too far");
        assert!(matches!(refused, OutboxError::TooLate { most: 3_650, .. }), "{refused}");
        assert!(refused.to_string().contains("milliseconds since 1970"), "{refused}");
    }
    emit(now_ms + 3_649 * 86_400_000).await.expect("emitted");
    assert_eq!(desk.outbox.source().backlog().await.expect("counts").events, 1);
}
