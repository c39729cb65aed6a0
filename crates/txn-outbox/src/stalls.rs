//! Handlers that block their threads: found out, told, and in the end left to other processes.
//!
//! A handler that blocks cannot be dropped, and no timer of its runtime may run meanwhile. So a task of the heartbeat watches.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::balance;
use crate::event::Event;
use crate::handler::Failure;
use crate::inner::Inner;
use crate::lane;
use crate::source::Claim;

/// A handler that keeps its thread for so long in one poll blocks others of the same runtime.
const BLOCKS: Duration = Duration::from_millis(500);

/// The handlers that run.
#[derive(Debug, Default)]
pub(crate) struct Running(Mutex<Runs>);

#[derive(Debug, Default)]
struct Runs {
    next: u64,
    runs: BTreeMap<u64, Run>,
}

/// A handler that runs.
#[derive(Clone, Debug)]
struct Run {
    since: Duration,
    claim: Claim,
    event: Event,
}

/// A handler is counted among those that run until this is dropped.
#[derive(Debug)]
pub(crate) struct Entered {
    running: Arc<Running>,
    number: u64,
}

impl Running {
    pub(crate) fn enter(
        self: &Arc<Self>,
        since: Duration,
        claim: &Claim,
        event: &Event,
    ) -> Entered {
        let mut runs = self.0.lock();
        runs.next += 1;
        let number = runs.next;
        runs.runs.insert(number, Run { since, claim: claim.clone(), event: event.clone() });
        Entered { running: self.clone(), number }
    }

    /// Those that have run since this moment, by their numbers.
    fn since(&self, before: Duration) -> Vec<(u64, Run)> {
        let runs = self.0.lock();
        let old = runs.runs.iter().filter(|(_, run)| run.since <= before);
        old.map(|(number, run)| (*number, run.clone())).collect()
    }

    fn leave(&self, number: u64) {
        self.0.lock().runs.remove(&number);
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.running.leave(self.number);
    }
}

/// Runs a handler, and tells if one of its polls blocks the thread.
pub(crate) async fn timed<T>(this: &Inner, topic: &str, handler: impl Future<Output = T>) -> T {
    let mut handler = pin!(handler);
    std::future::poll_fn(|cx| {
        let began = this.now();
        let polled = handler.as_mut().poll(cx);
        let took = this.now().saturating_sub(began);
        // The 1st, 2nd, 4th, 8th … time: a handler that always blocks fills no log.
        if took >= BLOCKS && this.counters.blocked().is_power_of_two() {
            tracing::warn!(
                topic,
                ?took,
                "a handler blocks its thread: use tokio::task::spawn_blocking for work that does not await"
            );
        }
        polled
    })
    .await
}

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
