//! Processors: tasks that find requests and execute them concurrently.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use txn_lock::instance::Dead;

use crate::model::Entry;
use crate::processing::inner::Inner;

/// A running processor. A dropped processor starts no further request, and ends.
#[derive(Debug)]
#[must_use = "a processor ends when its handle is dropped"]
pub struct Processor {
    tasks: TaskTracker,
    inner: Arc<Inner>,
    stop: DropGuard,
}

impl Processor {
    /// Starts a processor for the requests of one application, or of all.
    pub(crate) fn start(inner: &Arc<Inner>, application: Option<String>) -> Self {
        let stop = inner.closing.child_token();
        let tasks = TaskTracker::new();
        inner.processors.fetch_add(1, Ordering::AcqRel);
        let run = Loop::new(inner, application, stop.clone(), tasks.clone()).run();
        // Two trackers: one for the handle of the processor, one for the shutdown.
        inner.tasks.spawn(tasks.track_future(run));
        let beat = tasks.track_future(beat(Arc::downgrade(inner), stop.clone()));
        inner.config.heartbeat.spawn(&inner.tasks, beat);
        tasks.close();
        Self { tasks, inner: inner.clone(), stop: stop.drop_guard() }
    }

    /// Stops the processor. Waits for its current requests, for at most `deadline`.
    ///
    /// Returns whether all of them have ended. The remaining ones continue.
    pub async fn stop(self, deadline: Duration) -> bool {
        self.stop.disarm().cancel();
        tokio::select! {
            biased;
            () = self.tasks.wait() => true,
            () = self.inner.clock().sleep(deadline) => false,
        }
    }
}

/// A request to execute.
struct Work {
    id: String,
    /// Evidence that the previous processor is dead.
    dead: Option<Dead>,
    /// Whether a processor died over the request.
    suspect: bool,
}

impl Work {
    fn of((entry, dead): (Entry, Option<Dead>)) -> Self {
        let suspect = dead.is_some() || entry.deaths > 0;
        Self { id: entry.id, dead, suspect }
    }
}

/// Writes heartbeats while the processor runs or executes a request.
async fn beat(inner: Weak<Inner>, stop: CancellationToken) {
    loop {
        let Some(this) = inner.upgrade() else { return };
        if stop.is_cancelled() && this.working.lock().is_empty() {
            return;
        }
        // Another task may have written a heartbeat a moment ago.
        let is_due =
            this.instances.valid_for().is_none_or(|left| left <= this.instances.lease() / 4 * 3);
        if is_due && let Err(error) = this.instances.beat().await {
            tracing::warn!(%error, "could not write the heartbeat of this processor");
        }
        let pace = this.instances.lease() / 3;
        let stopped = stop.is_cancelled();
        // After a stop, checks more often whether the last requests have ended.
        let pause = if stopped { pace.min(Duration::from_millis(50)) } else { pace };
        tokio::select! {
            biased;
            () = stop.cancelled(), if !stopped => {}
            () = this.clock().sleep(pause) => {}
        }
    }
}

/// The task of one processor.
struct Loop {
    inner: Weak<Inner>,
    /// The application whose requests the processor executes; `None`: all.
    application: Option<String>,
    stop: CancellationToken,
    tasks: TaskTracker,
    /// A permit for each request that runs.
    room: Arc<Semaphore>,
    /// Allows one recovery pass at a time.
    recovery: Arc<Semaphore>,
    look_at: Duration,
    recover_at: Duration,
}

impl Loop {
    fn new(
        inner: &Arc<Inner>,
        application: Option<String>,
        stop: CancellationToken,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            application,
            stop,
            tasks,
            room: Arc::new(Semaphore::new(inner.config.concurrency)),
            recovery: Arc::new(Semaphore::new(1)),
            look_at: inner.now(),
            recover_at: inner.now() + inner.config.recover_every,
            inner: Arc::downgrade(inner),
        }
    }

    async fn run(mut self) {
        while let Some(this) = self.inner.upgrade().filter(|_| !self.stop.is_cancelled()) {
            let mut work = self.take_fresh(&this);
            let more = this.now() >= self.look_at && self.poll(&this, &mut work).await;
            for one in work {
                if !self.execute(&this, one).await {
                    break;
                }
            }
            self.start_recovery(&this);
            if more {
                self.look_at = this.now();
                continue;
            }
            let left = self.look_at.saturating_sub(this.now());
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                () = this.kicked.notified() => {}
                () = this.clock().sleep(left) => {}
            }
        }
        if let Some(this) = self.inner.upgrade() {
            this.processors.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Takes the requests that this process has submitted.
    fn take_fresh(&self, this: &Inner) -> Vec<Work> {
        let fits = |of: &Option<String>| self.application.is_none() || *of == self.application;
        let mut fresh = this.fresh.lock();
        let (ours, others): (VecDeque<_>, _) = fresh.drain(..).partition(|(_, of)| fits(of));
        *fresh = others;
        ours.into_iter().map(|(id, _)| Work { id, dead: None, suspect: false }).collect()
    }

    /// Adds the open requests of the store to the work. Returns whether more may be open.
    async fn poll(&mut self, this: &Inner, work: &mut Vec<Work>) -> bool {
        let found = this.find_work(self.application.as_deref()).await;
        self.look_at = this.now() + this.config.poll;
        match found {
            Ok(found) => {
                work.extend(found.requests.into_iter().map(Work::of));
                found.leaves_some
            }
            Err(error) => {
                tracing::warn!(%error, "could not poll for requests");
                false
            }
        }
    }

    /// Executes a request in a task, after its permit. Returns `false` if the processor stops.
    async fn execute(&self, this: &Arc<Inner>, Work { id, dead, suspect }: Work) -> bool {
        // Suspects wait for each other, and meanwhile take no permit from other requests.
        let permits = u32::from(!suspect);
        // Claims a request only after its permit. Other processes can take the remaining ones.
        let permit = tokio::select! {
            biased;
            () = self.stop.cancelled() => return false,
            permit = self.room.clone().acquire_many_owned(permits) => permit,
        };
        let Ok(permit) = permit else { return false };
        let inner = this.clone();
        self.spawn(this, async move {
            if let Err(error) = inner.process(&id, dead.as_ref()).await {
                tracing::warn!(%error, "a request is retried later");
            }
            drop(permit);
        });
        true
    }

    /// Starts a recovery pass if it is due.
    ///
    /// The pass runs in its own task, because it may wait for a lease of other processes.
    fn start_recovery(&mut self, this: &Arc<Inner>) {
        if this.now() < self.recover_at {
            return;
        }
        let Ok(one) = self.recovery.clone().try_acquire_owned() else { return };
        self.recover_at = this.now() + this.config.recover_every;
        let (inner, application) = (this.clone(), self.application.clone());
        self.spawn(this, async move {
            if let Err(error) = inner.recover_pass(application.as_deref()).await {
                tracing::warn!(%error, "could not recover requests");
            }
            drop(one);
        });
    }

    fn spawn(&self, this: &Inner, one: impl Future<Output = ()> + Send + 'static) {
        this.tasks.spawn(self.tasks.track_future(one));
    }
}
