//! Processors: tasks that find requests and execute them concurrently.

use std::collections::VecDeque;
use std::ops::AddAssign;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use txn_lock::instance::Dead;

use crate::contents::selection::Selection;
use crate::error::Result;
use crate::inner::Inner;
use crate::model::{Entry, State};
use crate::processing::process::Processed;
use crate::requests::Requests;

/// A running processor. A dropped processor starts no further request, and ends.
#[derive(Debug)]
#[must_use = "a processor ends when its handle is dropped"]
pub struct Processor {
    tasks: TaskTracker,
    inner: Arc<Inner>,
    stop: DropGuard,
}

impl Processor {
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

/// The results of one pass over open requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Tally {
    /// The number of committed requests.
    pub committed: usize,
    /// The number of requests that were rolled back.
    ///
    /// Counts refused requests, and requests in the state `terminating`.
    pub rolled_back: usize,
    /// The number of committed requests that the pass marked as finished.
    pub finished: usize,
    /// The number of failed requests that will be retried.
    pub failed: usize,
    /// The number of quarantined requests.
    pub quarantined: usize,
}

impl Tally {
    pub(crate) fn count(&mut self, processed: Processed) {
        match processed {
            Processed::Committed => self.committed += 1,
            Processed::Refused => self.rolled_back += 1,
            Processed::Failed => self.failed += 1,
            Processed::Quarantined => self.quarantined += 1,
            Processed::Waits | Processed::NotOurs => {}
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.committed += other.committed;
        self.rolled_back += other.rolled_back;
        self.finished += other.finished;
        self.failed += other.failed;
        self.quarantined += other.quarantined;
    }
}

impl Requests {
    /// Starts a processor for the requests of one application, or of all.
    ///
    /// Any number of processors may run in any number of processes, and each request still has one
    /// effect. Each processor also runs the recovery, every
    /// [`RequestsConfig::recover_every`](crate::RequestsConfig::recover_every).
    #[must_use = "a processor ends when its handle is dropped"]
    pub fn start(&self, application: Option<&str>) -> Processor {
        let inner = &self.inner;
        let stop = inner.closing.child_token();
        let tasks = TaskTracker::new();
        inner.processors.fetch_add(1, Ordering::AcqRel);
        let run =
            run(Arc::downgrade(inner), application.map(str::to_owned), stop.clone(), tasks.clone());
        // Two trackers: one for the handle of the processor, one for the shutdown.
        inner.tasks.spawn(tasks.track_future(run));
        let beat = tasks.track_future(beat(Arc::downgrade(inner), stop.clone()));
        inner.config.heartbeat.spawn(&inner.tasks, beat);
        tasks.close();
        Processor { tasks, inner: inner.clone(), stop: stop.drop_guard() }
    }

    /// Executes the open requests once, oldest first, and returns.
    ///
    /// The call takes unclaimed requests, and those of processors that an earlier call observed as
    /// dead.
    ///
    /// # Errors
    /// As [`Requests::list`]. Failures of single requests only count in the [`Tally`].
    pub async fn process_open(&self, application: Option<&str>) -> Result<Tally> {
        let mut tally = Tally::default();
        for (entry, dead) in self.inner.find_work(application).await? {
            tally.count(self.inner.process(&entry.id, dead.as_ref()).await?);
        }
        Ok(tally)
    }
}

impl Inner {
    /// The requests that this process may execute, oldest first.
    ///
    /// Each comes with evidence if its processor is dead.
    pub(crate) async fn find_work(
        &self,
        application: Option<&str>,
    ) -> Result<Vec<(Entry, Option<Dead>)>> {
        let selection = Selection::default()
            .with_states([State::Created, State::Pending])
            .with_application_name(application);
        let mut work = Vec::new();
        for entry in self.select(&selection).await? {
            if work.len() >= self.config.batch {
                break;
            }
            // Requests that only other processes can execute must not fill the batch.
            let cannot = self.is_deferred(&entry.id) || !self.can_emit(&entry.request);
            if cannot || self.working.lock().contains(&entry.id) {
                continue;
            }
            if let Some(dead) = self.may_take(&entry).await? {
                work.push((entry, dead));
            }
        }
        Ok(work)
    }

    /// Whether a request is free. The inner value is evidence of a dead processor.
    pub(crate) async fn may_take(&self, entry: &Entry) -> Result<Option<Option<Dead>>> {
        let claim = match &entry.claim {
            Some(claim) if entry.state == State::Pending => claim,
            _ => return Ok(Some(None)),
        };
        if claim.instance == self.instances.id() {
            return Ok(Some(None));
        }
        let lease = Duration::from_millis(claim.lease_ms);
        Ok(self.instances.look(&claim.instance, lease).await?.map(Some))
    }

    pub(crate) fn is_deferred(&self, id: &str) -> bool {
        self.deferred.lock().get(id).is_some_and(|deferral| deferral.until > self.now())
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

async fn run(
    inner: Weak<Inner>,
    application: Option<String>,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    let Some(this) = inner.upgrade() else { return };
    let room = Arc::new(Semaphore::new(this.config.concurrency));
    // Allows one recovery pass at a time.
    let recovery = Arc::new(Semaphore::new(1));
    let (poll, recover_every) = (this.config.poll, this.config.recover_every);
    let (mut look_at, mut recover_at) = (this.now(), this.now() + recover_every);
    drop(this);
    let fits = |of: &Option<String>| application.is_none() || *of == application;
    while let Some(this) = inner.upgrade().filter(|_| !stop.is_cancelled()) {
        let mut work: Vec<Work> = Vec::new();
        {
            let mut fresh = this.fresh.lock();
            let (ours, others): (VecDeque<_>, _) = fresh.drain(..).partition(|(_, of)| fits(of));
            *fresh = others;
            let fresh = |(id, _)| Work { id, dead: None, suspect: false };
            work.extend(ours.into_iter().map(fresh));
        }
        let mut more = false;
        if this.now() >= look_at {
            match this.find_work(application.as_deref()).await {
                Ok(found) => {
                    more = found.len() >= this.config.batch;
                    work.extend(found.into_iter().map(Work::of));
                }
                Err(error) => tracing::warn!(%error, "could not poll for requests"),
            }
            look_at = this.now() + poll;
        }
        for Work { id, dead, suspect } in work {
            // Suspects wait for each other, and meanwhile take no permit from other requests.
            let permits = u32::from(!suspect);
            // Claims a request only after its permit. Other processes can take the remaining ones.
            let permit = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                permit = room.clone().acquire_many_owned(permits) => permit,
            };
            let Ok(permit) = permit else { break };
            let this = this.clone();
            let one = async move {
                if let Err(error) = this.process(&id, dead.as_ref()).await {
                    tracing::warn!(%error, "a request is retried later");
                }
                drop(permit);
            };
            inner_spawn(&inner, &tasks, one);
        }
        // Runs in its own task, because the recovery may wait for a lease of other processes.
        if this.now() >= recover_at
            && let Ok(one) = recovery.clone().try_acquire_owned()
        {
            recover_at = this.now() + recover_every;
            let (this, application) = (this.clone(), application.clone());
            let pass = async move {
                if let Err(error) = this.recover_pass(application.as_deref()).await {
                    tracing::warn!(%error, "could not recover requests");
                }
                drop(one);
            };
            inner_spawn(&inner, &tasks, pass);
        }
        if more {
            look_at = this.now();
            continue;
        }
        let left = look_at.saturating_sub(this.now());
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = this.kicked.notified() => {}
            () = this.clock().sleep(left) => {}
        }
    }
    if let Some(this) = inner.upgrade() {
        this.processors.fetch_sub(1, Ordering::AcqRel);
    }
}

fn inner_spawn(
    inner: &Weak<Inner>,
    tasks: &TaskTracker,
    one: impl Future<Output = ()> + Send + 'static,
) {
    if let Some(inner) = inner.upgrade() {
        inner.tasks.spawn(tasks.track_future(one));
    }
}
