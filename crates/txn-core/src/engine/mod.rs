//! The engine: state and services that all attempts of a domain share.

pub(crate) mod admin;
pub(crate) mod apply;
pub(crate) mod attempt_error;
pub(crate) mod deadline;
pub(crate) mod history;
pub(crate) mod hot;
pub(crate) mod lifecycle;
pub(crate) mod lock_queue;
pub(crate) mod recovery;
pub(crate) mod serving_runtime;
pub(crate) mod store;
pub(crate) mod table;
pub(crate) mod time;
pub(crate) mod wait_reason;

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

use crate::clock::Backoff;
use crate::config::Config;
use crate::engine::admin::aliases::Aliases;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::history::heads::Histories;
use crate::engine::hot::Hot;
use crate::engine::lifecycle::Lifecycle;
use crate::engine::lock_queue::LiveAttempts;
use crate::engine::recovery::failure_detector::Liveness;
use crate::engine::serving_runtime::ServingRuntime;
use crate::engine::store::request_batching::RequestBatching;
use crate::engine::table::in_doubt::InDoubt;
use crate::engine::table::transaction_table::Table;
use crate::engine::time::Time;
use crate::engine::wait_reason::WaitReason;
use crate::error::Error;
use crate::event::Event;
use crate::store::Store;
use txn_protocol::document::Stored;
use txn_protocol::ids::{AttemptId, CommitVersion, IdSource};
use txn_protocol::record::{Aborted, Record, State};
use txn_protocol::rule::{Rule, Rules};
use txn_protocol::rules::recent::recent_with;

pub(crate) struct Engine {
    /// For spawned tasks.
    this: Weak<Engine>,
    store: Arc<dyn Store>,
    /// The same store with a request queue of its own, for records.
    records: Arc<dyn Store>,
    pub(crate) config: Config,
    /// The rules of the protocol. A test may leave one out.
    pub(crate) rules: Rules,
    pub(crate) ids: IdSource,
    pub(crate) table: Table,
    pub(crate) live_attempts: Arc<LiveAttempts>,
    liveness: Liveness,
    /// Tids whose `aborted` record is acknowledged to this process.
    pub(crate) aborted: KnownAborted,
    /// Commits that this process still searches for in documents.
    pub(crate) in_doubt: InDoubt,
    pub(crate) hot: Hot,
    /// The aliases through which collections were opened.
    aliases: Aliases,
    /// The collections that keep overwritten versions.
    pub(crate) histories: Histories,
    pub(crate) lifecycle: Lifecycle,
    /// An aborted tid for placeholders that only prove an absence.
    absence_probe: tokio::sync::Mutex<Option<AttemptId>>,
    time: Time,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("domain", &self.table.domain()).finish_non_exhaustive()
    }
}

/// Extra time after the deadline for the work to report its error.
///
/// The work knows the cause, and a timeout does not.
const OVERDUE: Duration = Duration::from_millis(100);

impl Engine {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        name: &str,
        config: Config,
    ) -> Result<Arc<Self>, Error> {
        config.check()?;
        check_name(name)?;
        let tasks = TaskTracker::new();
        let serving = Arc::new(ServingRuntime::new(config.runtime.clone()));
        // By default stores on servers batch requests, and embedded stores do not.
        let limits = store.limits();
        let shares = config.request_batching.unwrap_or(limits.batches_requests);
        let front = || -> Arc<dyn Store> {
            match shares {
                true => {
                    let (store, clock) = (store.clone(), config.clock.clone());
                    Arc::new(RequestBatching::new(store, tasks.clone(), clock, serving.clone()))
                }
                false => store.clone(),
            }
        };
        let (in_front, records) = (front(), front());
        Ok(Arc::new_cyclic(|this| Self {
            this: this.clone(),
            ids: IdSource::new(&*config.entropy),
            table: Table::new(name),
            live_attempts: Arc::new(LiveAttempts::default()),
            liveness: Liveness::default(),
            aborted: KnownAborted::default(),
            in_doubt: InDoubt::default(),
            // Commits, verdicts and heartbeats do not queue behind documents of a hanging shard.
            records,
            store: in_front,
            hot: Hot::new(&config, &limits),
            aliases: Aliases::default(),
            histories: Histories::default(),
            lifecycle: Lifecycle::new(tasks, serving.clone()),
            absence_probe: tokio::sync::Mutex::default(),
            time: Time::default(),
            rules: config.rules.clone(),
            config,
        }))
    }

    pub(crate) fn now(&self) -> Duration {
        self.config.clock.monotonic()
    }

    /// Milliseconds since the Unix epoch, for records.
    pub(crate) fn unix_millis(&self) -> u64 {
        u64::try_from(self.utc().as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn emit(&self, event: &Event) {
        tracing::debug!(?event);
        if let Some(observer) = &self.config.observer {
            // A panic of the observer must not stop a transaction half way.
            let told = std::panic::catch_unwind(AssertUnwindSafe(|| observer.on_event(event)));
            if told.is_err() {
                tracing::error!(?event, "the observer panicked");
            }
        }
    }

    /// Runs work that several callers wait for, in a task.
    ///
    /// A caller that does not poll its future delays no other caller. The task continues if its
    /// caller is dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the runtime of the task has
    /// ended.
    async fn shared<T, F>(&self, work: impl FnOnce(Arc<Self>) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let ended = || Error::unavailable("the runtime of the domain has ended");
        let this = self.this.upgrade().ok_or_else(ended)?;
        let task = self.lifecycle.spawn(work(this));
        task.await.map_err(|error| match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => ended(),
        })
    }

    /// The deadline of work for the domain, not for one transaction.
    pub(crate) fn deadline(&self, wait: Duration) -> Deadline {
        Deadline::until(self.now() + wait)
    }

    /// Runs `work` for at most `wait` and 100 ms.
    ///
    /// After this time the work is dropped, even if the store hangs. A tracked task continues.
    pub(crate) async fn within<T>(
        &self,
        wait: Duration,
        work: impl Future<Output = Result<T, AttemptError>>,
    ) -> Result<T, AttemptError> {
        tokio::select! {
            biased;
            result = work => result,
            () = self.config.clock.sleep(wait.saturating_add(OVERDUE)) => {
                Err(Error::unavailable("the store did not answer before the deadline").into())
            }
        }
    }

    /// The backoff between retries of a request, or polls of a lock.
    pub(crate) fn backoff(&self) -> Backoff {
        Backoff::new(Duration::from_millis(2), Duration::from_millis(200))
    }

    pub(crate) async fn pause(
        &self,
        deadline: &Deadline,
        backoff: &mut Backoff,
        reason: WaitReason,
    ) -> Result<(), AttemptError> {
        let wait = backoff.next(&*self.config.entropy);
        deadline.pause(&*self.config.clock, wait, reason).await
    }

    /// A record of the attempt, without participants.
    pub(crate) fn record(&self, tid: AttemptId, state: State) -> Record {
        let now = self.unix_millis();
        Record {
            state,
            tid,
            aborted: None,
            commit_version: None,
            participants: Vec::new(),
            images: Vec::new(),
            metadata: None,
            coordinator: self.config.process_name.clone(),
            application: self.config.application_name.clone(),
            created_at: now,
            heartbeat_at: None,
            modified_at: now,
        }
    }

    /// An `aborted` record in the name of this process.
    pub(crate) fn aborted_record(&self, tid: AttemptId, why: &str) -> Record {
        let by = self.config.process_name.clone();
        let aborted = Some(Aborted { by, why: why.to_owned() });
        Record { aborted, ..self.record(tid, State::Aborted) }
    }

    /// The list of recent commits with one more commit.
    pub(crate) fn recent_with(
        &self,
        recent: &[CommitVersion],
        commit: CommitVersion,
    ) -> Vec<CommitVersion> {
        // A process in doubt searches the list until its deadline, and its write lands before the
        // store gives up on the request.
        let longest = self.store.request_timeout().saturating_mul(2).max(self.config.timeout);
        let horizon = self.utc().saturating_sub(longest);
        let keeps = |tid| self.rules.decides(Rule::KeepInDoubt) && self.in_doubt.contains(tid);
        let is_known = |version| self.ids.has_issued(version) && !keeps(version);
        recent_with(recent, commit, is_known, horizon)
    }

    /// The document after the commit, in place of `before`.
    pub(crate) fn committed(
        &self,
        before: &Stored,
        commit: CommitVersion,
        image: &crate::json::Image,
    ) -> Stored {
        let recent = self.recent_with(&before.recent, commit).into();
        Stored {
            lock: None,
            commit_version: Some(commit),
            recent,
            absent: false,
            image: image.clone(),
        }
    }
}

/// A bounded set of aborted tids.
#[derive(Debug, Default)]
pub(crate) struct KnownAborted(Mutex<std::collections::BTreeSet<AttemptId>>);

impl KnownAborted {
    pub(crate) fn insert(&self, tid: AttemptId) {
        let mut known = self.0.lock();
        known.insert(tid);
        if known.len() > 10_000 {
            known.pop_first();
        }
    }

    pub(crate) fn contains(&self, tid: AttemptId) -> bool {
        self.0.lock().contains(&tid)
    }
}

/// Checks a domain name, which becomes a part of collection names.
fn check_name(name: &str) -> Result<(), Error> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    if starts && name.len() <= 64 && name.chars().all(plain) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{name:?} cannot name a domain: use 1 to 64 of a-z, 0-9, - and _, beginning with a letter or a digit"
    )))
}
