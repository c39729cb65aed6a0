//! Handlers that block their threads beyond the limit are left to other processes.
//!
//! A handler that blocks cannot be dropped, and no timer of its runtime may run meanwhile. So a task of the heartbeat watches.

use std::sync::Arc;

use crate::balance;
use crate::handler::Failure;
use crate::inner::Inner;
use crate::lane;
use crate::running::Run;

/// Gives up the shards of handlers that block their threads beyond the limit, until the processor stops. The failure is
/// counted, so the event is set aside in the end.
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
            give_up(&this, number, run).await;
        }
    }
}

async fn give_up(this: &Arc<Inner>, number: u64, run: Run) {
    let Run { claim, event, .. } = run;
    let limit = this.config.limit;
    tracing::error!(
        event = event.id,
        topic = event.queue.topic(),
        ?limit,
        "a handler blocks its thread beyond the limit, and its shard is given up: use tokio::task::spawn_blocking"
    );
    let why = format!("the handler blocked its thread for longer than {limit:?}");
    lane::failed(this, &claim, &event, Failure::counted(why)).await;
    match this.locks.break_lock(balance::SHARD, &balance::id(this, claim.shard())).await {
        Ok(_) => {
            this.counters.stalled();
            this.running.leave(number);
        }
        Err(error) => tracing::warn!(shard = %claim.shard(), %error, "the shard is given up later"),
    }
}
