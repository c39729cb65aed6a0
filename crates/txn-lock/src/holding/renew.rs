//! The renewal task of a service.
//!
//! The task writes heartbeats while this process holds locks, detects lost locks, releases grants
//! without a guard, and scans for locks of dead instances.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use txn_core::clock::Clock;

use crate::config::LockConfig;
use crate::error::Result;
use crate::inner::Inner;

pub(crate) fn start(service: &Arc<Inner>) {
    let clock = service.repository.domain().config().shared_clock();
    let (closing, stirred) = (service.closing.clone(), service.stirred.clone());
    let (weak, config) = (Arc::downgrade(service), service.config.clone());
    let heartbeat = config.heartbeat;
    heartbeat.spawn(&service.tasks, run(weak, clock, closing, stirred, config));
}

/// Runs until the service is closed, or its last handle is dropped.
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
                service.settle_unreleased().await;
            }
            if config.reap_interval.is_some_and(|every| clock.monotonic() >= reaped_at + every) {
                reaped_at = clock.monotonic();
                told("scan for dead instances", service.reap_pass(&mut Vec::new()).await);
            }
        };
        // The held locks are safe for this time, even if the store does not answer.
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

/// Logs an error. The next round tries again.
fn told<T>(what: &str, done: Result<T>) {
    if let Err(error) = done {
        tracing::warn!(%error, "could not {what}");
    }
}
