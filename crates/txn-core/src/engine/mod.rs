//! What the parts of a domain share: the store, the settings, the clocks, the memory of this process.

pub(crate) mod apply;
pub(crate) mod attempt_error;
pub(crate) mod deadline;
pub(crate) mod domain_document;
pub(crate) mod failure_detector;
pub(crate) mod finish;
pub(crate) mod format;
pub(crate) mod help;
pub(crate) mod holder;
pub(crate) mod janitor;
pub(crate) mod lock_queue;
pub(crate) mod lock_resolver;
pub(crate) mod lost;
pub(crate) mod observe;
pub(crate) mod pages;
pub(crate) mod retention;
pub(crate) mod server_clock;
pub(crate) mod settle;
pub(crate) mod shared_requests;
pub(crate) mod single_write;
pub(crate) mod survey;
pub(crate) mod transaction_table;
pub(crate) mod turn;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::Backoff;
use crate::config::Config;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::{Deadline, WaitReason};
use crate::engine::failure_detector::Liveness;
use crate::engine::lock_queue::LiveAttempts;
use crate::engine::server_clock::ServerClock;
use crate::engine::transaction_table::Table;
use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::store::{CollectionInfo, Key, Read, Store, StoreErrorKind, Version};
use txn_protocol::document::{Stored, View};
use txn_protocol::record::{Aborted, Record, State};
use txn_protocol::rule::Rules;
use txn_protocol::tid::{Tid, TidSource};

pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) config: Config,
    /// The rules of the protocol: all of them, unless a test leaves one out.
    pub(crate) rules: Rules,
    pub(crate) tids: TidSource,
    pub(crate) table: Table,
    pub(crate) live_attempts: Arc<LiveAttempts>,
    pub(crate) liveness: Liveness,
    /// Tids whose `aborted` record is acknowledged to this process.
    pub(crate) aborted: KnownAborted,
    /// The collections that were opened, by physical name.
    pub(crate) collections: Mutex<BTreeMap<Arc<str>, CollectionInfo>>,
    /// Where records are written and read: the same store, past the queues of documents.
    pub(crate) records: Arc<dyn Store>,
    /// The runtime that the domain was opened in, if it was one.
    pub(crate) runtime: Option<tokio::runtime::Handle>,
    /// Every task of the domain.
    pub(crate) tasks: TaskTracker,
    /// Cancelled when the domain begins to shut down.
    pub(crate) closing: CancellationToken,
    /// Something committed was left to the janitor.
    pub(crate) left_over: std::sync::atomic::AtomicBool,
    /// A tid that is aborted for good, for placeholders that only prove an absence.
    pub(crate) absence_probe: tokio::sync::Mutex<Option<Tid>>,
    pub(crate) server_clock: ServerClock,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("domain", &self.table.domain()).finish_non_exhaustive()
    }
}

/// How much later than the deadline a caller is answered at the latest: the work itself, which knows more, is given the
/// time to say why.
const OVERDUE: Duration = Duration::from_millis(100);

impl Engine {
    pub(crate) fn now(&self) -> Duration {
        self.config.clock.monotonic()
    }

    /// Milliseconds since the Unix epoch, for records.
    pub(crate) fn unix_millis(&self) -> u64 {
        u64::try_from(self.config.clock.wall().as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn emit(&self, event: &Event) {
        tracing::debug!(?event);
        if let Some(observer) = &self.config.observer {
            // An observer only observes: what it does to itself stops no transaction half way.
            let told = std::panic::catch_unwind(AssertUnwindSafe(|| observer.on_event(event)));
            if told.is_err() {
                tracing::error!(?event, "the observer panicked");
            }
        }
    }

    /// The deadline of work on behalf of a domain, not of one transaction.
    pub(crate) fn deadline(&self, wait: Duration) -> Deadline {
        Deadline::until(self.now() + wait)
    }

    /// Waits for `work` so long and not much longer, whatever the store does. The work is dropped then; a tracked task
    /// goes on.
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

    /// The backoff between tries against the store or polls of a lock.
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
    pub(crate) fn record(&self, tid: Tid, state: State) -> Record {
        let now = self.unix_millis();
        Record {
            state,
            tid,
            aborted: None,
            commit_tid: None,
            participants: Vec::new(),
            images: Vec::new(),
            metadata: None,
            coordinator: self.config.coordinator.clone(),
            application: self.config.application.clone(),
            created_at: now,
            heartbeat_at: None,
            modified_at: now,
        }
    }

    /// An `aborted` record in this process's words.
    pub(crate) fn aborted_record(&self, tid: Tid, why: &str) -> Record {
        let by = self.config.coordinator.clone();
        let aborted = Some(Aborted { by, why: why.to_owned() });
        Record { aborted, ..self.record(tid, State::Aborted) }
    }

    /// Reads documents until the store answers for all of them, in order.
    pub(crate) async fn read_documents(
        &self,
        keys: &[Key],
        from: ReadPreference,
        deadline: &Deadline,
    ) -> Result<Vec<View>, AttemptError> {
        let mut backoff = self.backoff();
        let mut views: Vec<Option<View>> = vec![None; keys.len()];
        loop {
            let missing: Vec<usize> = (0..keys.len()).filter(|i| views[*i].is_none()).collect();
            if missing.is_empty() {
                return Ok(views.into_iter().flatten().collect());
            }
            let asked: Vec<Key> = missing.iter().map(|i| keys[*i].clone()).collect();
            let looks = self.look_at(&asked, from).await;
            let mut reason = None;
            for ((index, key), look) in missing.into_iter().zip(&asked).zip(looks) {
                match look {
                    Look::Seen(view) => views[index] = Some(view),
                    Look::Missing => return Err(missing_collection(key).into()),
                    Look::Later(why) => reason = Some(WaitReason::Store(why)),
                    Look::Broken(error) => return Err(error.into()),
                }
            }
            if let Some(reason) = reason {
                self.pause(deadline, &mut backoff, reason).await?;
            }
        }
    }

    /// Reads documents once, with an answer for each, in order.
    pub(crate) async fn look_at(&self, keys: &[Key], from: ReadPreference) -> Vec<Look> {
        if keys.is_empty() {
            return Vec::new();
        }
        let reads = match from {
            ReadPreference::AnyCopy => self.store.get_many(keys).await,
            ReadPreference::Primary => self.store.read_primary(keys).await,
        };
        let mut looks: Vec<Look> =
            keys.iter().zip(reads).map(|(key, read)| Look::of(key, read)).collect();
        let no_answer = || Look::Later("the store answered for too few documents".to_owned());
        looks.resize_with(keys.len(), no_answer);
        looks
    }

    /// The reserved list of recent commits after one more.
    pub(crate) fn recent_with(&self, recent: &[Tid], commit: Tid) -> Vec<Tid> {
        let horizon =
            self.config.clock.wall().saturating_sub(self.store.request_timeout().saturating_mul(2));
        let mut list: Vec<Tid> = recent.iter().copied().filter(|tid| *tid != commit).collect();
        list.push(commit);
        let fresh = list.iter().filter(|tid| tid.unix_time() >= horizon).count();
        let keep = fresh.clamp(4, 64);
        list.split_off(list.len().saturating_sub(keep))
    }

    /// The content a commit leaves behind in place of what stood there.
    pub(crate) fn committed(&self, before: &Stored, commit: Tid, image: &crate::Image) -> Stored {
        let recent = self.recent_with(&before.recent, commit);
        Stored { lock: None, tid: Some(commit), recent, absent: false, image: image.clone() }
    }
}

/// Which copy a read asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadPreference {
    /// Any: fast, perhaps stale.
    AnyCopy,
    /// The primary.
    Primary,
}

/// What one read of a document came to.
#[derive(Debug)]
pub(crate) enum Look {
    Seen(View),
    /// Its collection is missing, as far as the copy that was asked knows.
    Missing,
    /// The store cannot answer now.
    Later(String),
    /// No later read tells more.
    Broken(Error),
}

impl Look {
    fn of(key: &Key, read: Read) -> Self {
        match read {
            Read::Found { version, source } => {
                view(key, version, &source).map_or_else(Self::Broken, Self::Seen)
            }
            Read::Absent => Self::Seen(View::Absent),
            Read::MissingCollection => Self::Missing,
            Read::Unavailable(error) if error.kind == StoreErrorKind::Unavailable => {
                Self::Later(error.message)
            }
            Read::Unavailable(error) => Self::Broken(Error::from(error).at(key)),
        }
    }
}

/// Takes a source apart.
pub(crate) fn view(key: &Key, version: Version, source: &str) -> Result<View, Error> {
    let stored = Stored::parse(source).map_err(|e| {
        Error::damaged(format!("the stored document cannot be used in a transaction: {e}")).at(key)
    })?;
    Ok(View::Present { version, source: txn_protocol::document::flatten(source).into(), stored })
}

pub(crate) fn missing_collection(key: &Key) -> Error {
    let message = format!("the collection {:?} does not exist (any more)", key.collection);
    Error::new(ErrorKind::Misconfigured, message).at(key)
}

/// A bounded memory of tids.
#[derive(Debug, Default)]
pub(crate) struct KnownAborted(Mutex<std::collections::BTreeSet<Tid>>);

impl KnownAborted {
    pub(crate) fn insert(&self, tid: Tid) {
        let mut known = self.0.lock();
        known.insert(tid);
        if known.len() > 10_000 {
            known.pop_first();
        }
    }

    pub(crate) fn contains(&self, tid: Tid) -> bool {
        self.0.lock().contains(&tid)
    }
}
