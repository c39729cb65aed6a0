//! The heartbeat: renews the `pending` record of a long attempt.
//!
//! The first heartbeat follows half a lease after the first lock. Without heartbeats, other
//! processes would take the owner for dead after one lease.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::FutureExt;

use crate::attempt::Attempt;
use crate::engine::store::settle::write_under;
use crate::engine::store::store_access::ReadPreference;
use txn_protocol::machines::record::Beat;
use txn_protocol::machines::settle::Answer;
use txn_protocol::record::{Record, State};

/// Starts the heartbeat with the first lock, once.
///
/// At the time limit of the attempt, the heartbeat ends and the attempt expires.
pub(in crate::attempt) fn start_heart(attempt: &Arc<Attempt>) {
    if attempt.beating.swap(true, Ordering::AcqRel) {
        return;
    }
    let this = attempt.clone();
    attempt.engine.context.lifecycle.spawn(async move {
        let heart = this.heart.clone();
        tokio::select! {
            biased;
            () = heart.cancelled() => {}
            () = limit_passed(&this) => this.expire(),
            () = beat_whatever_happens(&this) => {}
        }
    });
}

/// Waits for the attempt's time limit. Waits without locks move the limit.
async fn limit_passed(attempt: &Attempt) {
    let context = &attempt.engine.context;
    loop {
        let left = attempt.handle.limit().saturating_sub(context.now());
        if left.is_zero() {
            return;
        }
        context.config.clock.sleep(left).await;
    }
}

/// Beats, and never returns.
///
/// So the time limit of the attempt applies even after a panic of the store.
async fn beat_whatever_happens(attempt: &Attempt) {
    while AssertUnwindSafe(beat(attempt)).catch_unwind().await.is_err() {
        tracing::error!(tid = %attempt.tid, "a heartbeat panicked; it beats again");
    }
    std::future::pending::<()>().await;
}

/// Beats until the writer is sealed or the attempt is aborted.
///
/// If this future is dropped during a write, the writer stays as it was; after the first write
/// the writer is doubtful. The task that seals the writer finds the record at another version, and
/// settles the record.
async fn beat(attempt: &Attempt) {
    let lease = attempt.engine.context.config.lease_of(attempt.tid.attempt());
    attempt.engine.context.config.clock.sleep(lease / 2).await;
    while beat_once(attempt).await {
        attempt.engine.context.config.clock.sleep(lease / 3).await;
    }
}

async fn beat_once(attempt: &Attempt) -> bool {
    let mut writer = attempt.record_writer.lock().await;
    let pending = Record {
        heartbeat_at: Some(attempt.engine.time.unix_millis()),
        label: attempt.options.label.clone(),
        ..attempt.engine.table.new_record(attempt.tid, State::Pending)
    };
    let Ok(source) = pending.encode() else { return false };
    let before = *writer;
    let Some(condition) = writer.beat() else { return false };
    let op = write_under(condition, source);
    let Ok(outcome) = attempt.engine.table.write_record(attempt.tid, &op, &attempt.deadline).await
    else {
        return false;
    };
    match Answer::from(outcome) {
        Answer::Proof(Some(version)) => {
            writer.beaten(version);
            true
        }
        Answer::Later(_) => {
            *writer = before;
            true
        }
        Answer::Doubt(_) => {
            let found = attempt
                .engine
                .table
                .record_of(attempt.tid, ReadPreference::Primary, &attempt.deadline)
                .await;
            let Ok(found) = found else { return false };
            match writer.seen(found.standing) {
                Beat::GoOn => true,
                Beat::Wounded => {
                    attempt.handle.wound();
                    false
                }
                Beat::Stop => false,
            }
        }
        Answer::Proof(None) | Answer::Refused(_) => false,
    }
}
