//! The task that renews: shows that this process lives as long as it holds anything, finds out what was taken from it,
//! gives back what nobody holds, and now and then looks for what dead instances left.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use txn_core::clock::Clock;

use crate::config::LockConfig;
use crate::error::Result;
use crate::inner::Inner;

/// Starts the task.
pub(crate) fn start(service: &Arc<Inner>) {
    let clock = service.repository.domain().config().clock.clone();
    let (closing, stirred) = (service.closing.clone(), service.stirred.clone());
    let (weak, config) = (Arc::downgrade(service), service.config.clone());
    let heartbeat = config.heartbeat;
    heartbeat.spawn(&service.tasks, run(weak, clock, closing, stirred, config));
}

/// Runs until the service is closed, or its last handle and guard are gone.
async fn run(
    service: Weak<Inner>,
    clock: Arc<dyn Clock>,
    closing: CancellationToken,
    stirred: Arc<Notify>,
    config: LockConfig,
) {
    let pace = config.lease / 3;
    let mut reaped_at = clock.monotonic();
    loop {
        tokio::select! {
            biased;
            () = closing.cancelled() => return,
            () = stirred.notified() => {}
            () = clock.sleep(pace) => {}
        }
        let Some(service) = service.upgrade() else { return };
        let round = async {
            if !service.is_idle() {
                told("renew", renew(&service).await);
                service.settle_strays().await;
            }
            if config.reap_interval.is_some_and(|every| clock.monotonic() >= reaped_at + every) {
                reaped_at = clock.monotonic();
                told("look for dead instances", service.reap_pass(&mut Vec::new()).await);
            }
        };
        // What is held is safe for so long, whatever the store does meanwhile.
        let safe_for = service.safe_for().unwrap_or(Duration::MAX);
        tokio::select! {
            biased;
            () = closing.cancelled() => return,
            () = round => {}
            () = clock.sleep(safe_for) => service.lose_if_expired(),
        }
    }
}

async fn renew(service: &Inner) -> Result<()> {
    service.beat().await?;
    service.check_held().await
}

/// The next round tries again.
fn told<T>(what: &str, done: Result<T>) {
    if let Err(error) = done {
        tracing::warn!(%error, "could not {what}");
    }
}
