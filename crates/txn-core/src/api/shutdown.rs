//! The end of a domain in this process.

use std::time::Duration;

use crate::engine::Engine;

/// Closes the domain, and waits until its transactions and tasks have ended.
///
/// Returns whether all commits of this process are applied before the deadline.
pub(crate) async fn shut_down(engine: &Engine, deadline: Duration) -> bool {
    engine.lifecycle.close();
    let drained = async {
        engine.lifecycle.ended().await;
        while engine.live_attempts.live_count() > 0 {
            engine.config.clock.sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        biased;
        () = drained => !engine.lifecycle.has_left_over(),
        () = engine.config.clock.sleep(deadline) => false,
    }
}
