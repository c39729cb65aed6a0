//! The end of a domain in this process.

use std::time::Duration;

use crate::engine::Engine;

/// Closes the domain, and waits until its transactions and tasks have ended.
///
/// Returns whether all commits of this process are applied within `timeout`.
pub(crate) async fn shut_down(engine: &Engine, timeout: Duration) -> bool {
    engine.context.lifecycle.close();
    let drained = async {
        engine.context.lifecycle.ended().await;
        while engine.live_attempts.live_count() > 0 {
            engine.context.config.clock.sleep(Duration::from_millis(5)).await;
        }
    };
    let is_applied = tokio::select! {
        biased;
        () = drained => !engine.context.lifecycle.has_left_over(),
        () = engine.context.config.clock.sleep(timeout) => false,
    };
    // The entry stays until the end, because it names the program of the last locks.
    engine.processes.leave().await;
    is_applied
}
