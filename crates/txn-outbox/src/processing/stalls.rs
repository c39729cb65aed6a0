//! Detection of handlers that block their threads beyond the limit.
//!
//! A blocking handler cannot be dropped, and no timer of its runtime may run in the meantime.
//! Therefore a task of the heartbeat's thread watches, and leaves the shard to other processes.

use std::sync::Arc;

use crate::handler::Failure;
use crate::processing::balance;
use crate::processing::inner::Inner;
use crate::processing::lane;
use crate::processing::running::Run;

/// Releases the shards of blocking handlers until the processor stops.
///
/// The block counts as a failure, so the event becomes a dead letter after enough of them.
pub(crate) async fn watch(this: Arc<Inner>) {
    let config = &this.config;
    let patience = config.limit + config.lease;
    loop {
        tokio::select! {
            biased;
            () = this.stop.cancelled() => return,
            () = this.clock().sleep(config.lease / 3) => {}
        }
        let Some(before) = this.now().checked_sub(patience) else { continue };
        for (number, run) in this.running.since(before) {
            release_shard(&this, number, run).await;
        }
    }
}

async fn release_shard(this: &Arc<Inner>, number: u64, run: Run) {
    let Run { claim, event, .. } = run;
    let limit = this.config.limit;
    tracing::error!(
        event = event.id,
        topic = event.queue.topic(),
        ?limit,
        "a handler blocks its thread beyond the limit, and its shard is released: use tokio::task::spawn_blocking"
    );
    let why = format!("the handler blocked its thread for longer than {limit:?}");
    lane::failed(this, &claim, &event, Failure::counted(why)).await;
    match this.locks.break_lock(balance::SHARD, &balance::id(this, claim.shard())).await {
        Ok(_) => {
            this.counters.stalled();
            this.running.remove(number);
        }
        Err(error) => tracing::warn!(shard = %claim.shard(), %error, "the shard is released later"),
    }
}
