//! The state that all handles of a domain's requests share.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use txn_core::clock::Clock;
use txn_core::scan::{PAGE, candidates};
use txn_core::store::{Cursor, Filter};
use txn_core::{Collection, CommitVersion, Domain, ErrorKind, Transaction};
use txn_lock::instance::{self, Instances, wall_ms};
use txn_lock::name;
use txn_lock::stored::Stored;

use crate::config::RequestsConfig;
use crate::contents::request::Request;
use crate::contents::selection::Selection;
use crate::error::{RequestError, Result};
use crate::model::{Entries, Entry, MAPPINGS, State, Status};
use crate::processing::apply::{Handles, Stop, Undo, carry_out};
use crate::processing::companion::Companion;
use crate::processing::counts::backlog::Backlog;
use crate::processing::emit::Emitter;
use crate::processing::handles::{OpenHandles, collection};
use crate::processing::watchers::Watchers;

/// The maximum number of bytes of a request id.
const MOST_ID: usize = 256;

/// The number of retries after a lost race for a new id.
pub(crate) const LOOKS: usize = 3;

/// The pause of a request that failed in this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deferral {
    /// The end of the pause, on the monotonic clock.
    pub(crate) until: Duration,
    /// The length of the pause.
    pub(crate) pause: Duration,
}

pub(crate) struct Inner {
    pub(crate) domain: Domain,
    /// The hook of the application.
    companion: Option<Arc<dyn Companion>>,
    pub(crate) entries: Collection<Entries>,
    pub(crate) config: RequestsConfig,
    pub(crate) instances: Instances,
    handles: OpenHandles,
    /// Emits events and HTTP requests, if there is an outbox.
    emitter: Option<Emitter>,
    pub(crate) backlog: Mutex<Backlog>,
    /// The requests that wait for their moment.
    pub(crate) scheduled: Mutex<Backlog>,
    /// The rests of bounded polls, by application.
    pub(crate) rests: Mutex<BTreeMap<Option<String>, Rest>>,
    pub(crate) watchers: Watchers,
    /// The requests that this process executes now.
    pub(crate) working: Mutex<BTreeSet<String>>,
    /// Allows only one suspect at a time.
    ///
    /// A suspect is a request during which a processor died.
    pub(crate) suspects: tokio::sync::Mutex<()>,
    /// The requests that failed or wait in this process.
    pub(crate) deferred: Mutex<BTreeMap<String, Deferral>>,
    /// The requests that were submitted in this process, for its processors.
    pub(crate) fresh: Mutex<VecDeque<(String, Option<String>)>>,
    pub(crate) processors: AtomicUsize,
    pub(crate) kicked: Notify,
    /// Permits for marking requests as finished after their acknowledgement.
    finishing: Arc<Semaphore>,
    /// Permits for requests that wait to be marked.
    to_finish: Arc<Semaphore>,
    pub(crate) tasks: TaskTracker,
    pub(crate) closing: CancellationToken,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("entries", &self.entries).finish_non_exhaustive()
    }
}

/// The rest of a bounded poll, at which the next poll continues.
#[derive(Debug)]
pub(crate) struct Rest {
    /// The requests that the poll found, and did not return.
    pub(crate) ids: BTreeSet<Arc<str>>,
    /// The position after these requests.
    pub(crate) next: Cursor,
}

/// The reason why the transaction of a request did not commit.
pub(crate) enum Halt {
    Stop(Stop),
    Failed(RequestError),
}

impl From<txn_core::Error> for Halt {
    fn from(error: txn_core::Error) -> Self {
        Self::Stop(Stop::Engine(error))
    }
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl Halt {
    /// Keeps errors of the engine and refusals distinct from other failures.
    fn from_error(error: RequestError) -> Self {
        match error {
            RequestError::Engine(error) => error.into(),
            RequestError::Refused(refusal) => Self::Stop(Stop::Refused(refusal)),
            error => Self::Failed(error),
        }
    }

    pub(crate) fn into_error(self) -> RequestError {
        match self {
            Self::Stop(Stop::Refused(refusal)) => RequestError::Refused(refusal),
            Self::Stop(Stop::Engine(error)) => RequestError::Engine(error),
            Self::Failed(error) => error,
        }
    }
}

impl Inner {
    pub(crate) async fn open(
        domain: &Domain,
        config: RequestsConfig,
        companion: Option<Arc<dyn Companion>>,
    ) -> Result<Self> {
        config.check()?;
        let entries = domain.create_system_collection(&collection(domain), MAPPINGS).await?;
        let processors = domain.collection_name("processors");
        let instances =
            Instances::open(domain, &processors, instance::MAPPINGS, config.lease).await?;
        let emitter = config.outbox.as_ref();
        let emitter =
            emitter.map(|outbox| Emitter::new(outbox, domain, config.max_bytes)).transpose()?;
        let handles = OpenHandles::new(domain);
        let finishing = Arc::new(Semaphore::new(config.concurrency));
        let to_finish = Arc::new(Semaphore::new(config.max_open.min(Semaphore::MAX_PERMITS)));
        Ok(Self {
            domain: domain.clone(),
            companion,
            entries,
            config,
            instances,
            handles,
            emitter,
            backlog: Mutex::default(),
            scheduled: Mutex::default(),
            rests: Mutex::default(),
            watchers: Watchers::default(),
            working: Mutex::default(),
            suspects: tokio::sync::Mutex::default(),
            deferred: Mutex::default(),
            fresh: Mutex::default(),
            processors: AtomicUsize::new(0),
            kicked: Notify::new(),
            finishing,
            to_finish,
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
        })
    }

    /// The effects of a request in a transaction, with its hook.
    pub(crate) async fn effects(
        &self,
        tx: &Transaction,
        handles: &Handles,
        request: &Request,
    ) -> Result<Vec<Undo>, Halt> {
        let most_copied = self.config.max_bytes;
        let undo = carry_out(tx, handles, &request.operations, most_copied).await?;
        if let Some(emitter) = &self.emitter {
            let emitted = emitter.emit(tx, &request.events, &request.after_commit).await;
            emitted.map_err(|error| Halt::from_error(error.into()))?;
        }
        if let Some(companion) = &self.companion {
            companion.accompany(tx, request).await.map_err(Halt::from_error)?;
        }
        Ok(undo)
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.domain.config().clock()
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock().monotonic()
    }

    pub(crate) fn check_id(&self, id: &str) -> Result<()> {
        match name::fits(id, MOST_ID) {
            true => Ok(()),
            false => Err(RequestError::InvalidId(id.chars().take(40).collect())),
        }
    }

    /// Validates a request. Returns the collections that it names.
    pub(crate) async fn check(&self, request: &Request, id: &str) -> Result<Handles> {
        self.check_id(id)?;
        let invalid = |why| RequestError::Invalid(why);
        let bytes = serde_json::to_string(request).map_err(|e| invalid(e.to_string()))?.len();
        let (limits, config) = (self.domain.store().limits(), &self.config);
        crate::contents::validate::check(
            request,
            bytes,
            config.max_operations,
            config.max_bytes,
            &limits,
        )
        .map_err(invalid)?;
        match &self.emitter {
            Some(emitter) => {
                emitter.check(&request.events, &request.after_commit).map_err(invalid)?;
            }
            None if !self.can_emit(request) => return Err(RequestError::NoOutbox),
            None => {}
        }
        self.handles_of(request).await
    }

    /// The open collections that a request names.
    pub(crate) async fn handles_of(&self, request: &Request) -> Result<Handles> {
        self.handles.of(&request.operations).await
    }

    /// Whether this process can emit the events of a request.
    ///
    /// HTTP requests are events, too.
    pub(crate) fn can_emit(&self, request: &Request) -> bool {
        self.emitter.is_some() || (request.events.is_empty() && request.after_commit.is_empty())
    }

    /// The status of a stored request, if it equals the given one.
    pub(crate) fn same(&self, found: Entry, request: &Request) -> Result<Status> {
        match found.request == *request {
            true => Ok(found.status()),
            false => Err(RequestError::IdReused(found.id)),
        }
    }

    /// Stores a new request. Returns an existing request if it is the same.
    pub(crate) async fn insert(&self, request: &Request, id: &str) -> Result<Status> {
        let mut looks = 0;
        loop {
            let stored = self.domain.transact(async |tx| {
                if let Some(found) = self.read(tx, id).await? {
                    return Ok(found);
                }
                let entry = Entry::new(id, request.clone(), wall_ms(&self.domain));
                tx.insert(&self.entries, id, &Stored::Known(entry.clone()))?;
                Ok::<_, RequestError>(entry)
            });
            match stored.await {
                Err(RequestError::Engine(error))
                    if error.kind() == ErrorKind::Exists && looks < LOOKS =>
                {
                    looks += 1;
                }
                stored => return self.same(stored?, request),
            }
        }
    }

    /// Whether a request waits for its moment.
    pub(crate) fn is_early(&self, request: &Request) -> bool {
        request.not_before_ms.is_some_and(|at| at > wall_ms(&self.domain))
    }

    /// Wakes the processors of this process after a submission.
    pub(crate) fn submitted(&self, status: &Status) {
        if self.is_early(&status.request) {
            return self.scheduled.lock().add_submitted();
        }
        self.backlog.lock().add_submitted();
        if self.processors.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut fresh = self.fresh.lock();
        fresh.push_back((status.id.clone(), status.application.clone()));
        // Polls of the store find the dropped entries.
        if fresh.len() > self.config.batch {
            fresh.pop_front();
        }
        drop(fresh);
        self.kicked.notify_one();
    }

    /// Reads a request from the primary.
    pub(crate) async fn find(&self, id: &str) -> Result<Option<Entry>> {
        self.check_id(id)?;
        let found = self.domain.reader().verified().get(&self.entries, id).await?;
        found.map(|found| known(id, found)).transpose()
    }

    /// Reads a request in a transaction.
    pub(crate) async fn read(&self, tx: &Transaction, id: &str) -> Result<Option<Entry>> {
        let found = tx.get(&self.entries, id).await?;
        found.map(|found| known(id, found)).transpose()
    }

    /// Changes a request in one transaction. `change` returns whether to write.
    pub(crate) async fn change<T: Send>(
        &self,
        id: &str,
        change: impl Fn(&mut Entry, u64) -> Result<(bool, T)> + Send + Sync,
    ) -> Result<T> {
        let changed = self.domain.transact(async |tx| {
            let found = self.read(tx, id).await?;
            let mut entry = found.ok_or_else(|| RequestError::NotFound(id.to_owned()))?;
            let (write, value) = change(&mut entry, wall_ms(&self.domain))?;
            if write {
                tx.put(&self.entries, id, &Stored::Known(entry))?;
            }
            Ok::<_, RequestError>(value)
        });
        let value = changed.await?;
        self.watchers.changed(id);
        Ok(value)
    }

    /// The matching requests, oldest first. Skips unreadable requests.
    pub(crate) async fn select(&self, selection: &Selection) -> Result<Vec<Entry>> {
        Ok(readable(self.select_all(selection).await?))
    }

    /// The matching requests, oldest first.
    ///
    /// Also returns the error of the first unreadable request.
    pub(crate) async fn select_all(&self, selection: &Selection) -> Result<Selected> {
        let filter = match selection.states.is_empty() {
            true => Filter::All,
            false => states(selection.states.iter().copied()),
        };
        self.select_by(filter, selection).await
    }

    /// As [`Inner::select_all`], among the documents of a filter.
    pub(crate) async fn select_by(
        &self,
        filter: Filter,
        selection: &Selection,
    ) -> Result<Selected> {
        let ids = candidates(&self.domain, self.entries.name(), filter, usize::MAX).await?;
        self.select_of(ids, selection).await
    }

    /// As [`Inner::select_all`], among these documents.
    pub(crate) async fn select_of(
        &self,
        ids: BTreeSet<Arc<str>>,
        selection: &Selection,
    ) -> Result<Selected> {
        let ids: Vec<_> = ids.into_iter().collect();
        let (mut found, mut unread) = (Vec::new(), None);
        for ids in ids.chunks(PAGE) {
            for entry in self.read_each(ids).await? {
                match entry {
                    Ok(entry) => found.extend(entry.filter(|entry| selection.admits(entry))),
                    Err(error) => unread = unread.or(Some(error)),
                }
            }
        }
        found.sort_by(|a, b| a.times.created_ms.cmp(&b.times.created_ms).then_with(|| by_id(a, b)));
        Ok((found, unread))
    }

    /// Reads requests, with one result for each.
    async fn read_each(&self, ids: &[Arc<str>]) -> Result<Vec<Result<Option<Entry>>>> {
        let reader = self.domain.reader();
        let each = |(id, entry): (&Arc<str>, Option<Stored<Entry>>)| {
            entry.map(|entry| known(id, entry)).transpose()
        };
        match reader.get_many(&self.entries, ids).await {
            Ok(entries) => Ok(ids.iter().zip(entries).map(each).collect()),
            // A document is not a request: read all of them one by one.
            Err(error) if error.kind() == ErrorKind::WrongType => {
                let mut entries = Vec::with_capacity(ids.len());
                for id in ids {
                    entries.push(match reader.get(&self.entries, &**id).await {
                        Ok(entry) => each((id, entry)),
                        Err(error) if error.kind() == ErrorKind::WrongType => Err(error.into()),
                        Err(error) => return Err(error.into()),
                    });
                }
                Ok(entries)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Marks a committed request as finished after its acknowledgement, in the background.
    ///
    /// A limited number of requests is marked at a time, because many may commit at once. Beyond
    /// the limit of waiting ones, the recovery marks the request.
    pub(crate) fn finish_later(
        self: &Arc<Self>,
        id: &str,
        applied: bool,
        version: Option<CommitVersion>,
    ) {
        if !applied {
            return;
        }
        let Ok(place) = self.to_finish.clone().try_acquire_owned() else { return };
        let (this, id) = (self.clone(), id.to_owned());
        self.tasks.spawn(async move {
            let Ok(permit) = this.finishing.clone().acquire_owned().await else { return };
            if let Err(error) = this.finish(&id, version).await {
                tracing::debug!(%error, "a request is marked as finished later");
            }
            drop((permit, place));
        });
    }

    /// Marks a request with applied effects as finished.
    pub(crate) async fn finish(&self, id: &str, version: Option<CommitVersion>) -> Result<()> {
        self.finish_unless(id, version, &BTreeSet::new()).await.map(drop)
    }

    /// Marks a request as finished, unless its commit is not yet applied.
    ///
    /// Returns whether the request is no longer in the state `committed`.
    pub(crate) async fn finish_unless(
        &self,
        id: &str,
        version: Option<CommitVersion>,
        unapplied: &BTreeSet<CommitVersion>,
    ) -> Result<bool> {
        let finished = self.domain.transact(async |tx| {
            let Some(mut entry) = self.read(tx, id).await? else { return Ok(true) };
            if entry.state != State::Committed {
                return Ok(true);
            }
            entry.commit_version = match entry.commit_version.or(version) {
                Some(version) => Some(version),
                // The version of the document is that of the commit, because no process has written
                // it since.
                None => tx.version(&self.entries, id).await?,
            };
            if entry.commit_version.is_some_and(|version| unapplied.contains(&version)) {
                return Ok(false);
            }
            entry.enter(State::Finished, wall_ms(&self.domain));
            tx.put(&self.entries, id, &Stored::Known(entry))?;
            Ok::<_, RequestError>(true)
        });
        let is_finished = finished.await?;
        if is_finished {
            self.watchers.changed(id);
        }
        Ok(is_finished)
    }
}

pub(crate) fn states(of: impl IntoIterator<Item = State>) -> Filter {
    Filter::any_of("state", of.into_iter().map(State::name))
}

/// The requests in these states that are due at a moment.
pub(crate) fn due_states(of: impl IntoIterator<Item = State>, at_ms: u64) -> Filter {
    Filter::any_of_up_to("state", of.into_iter().map(State::name), "due_ms", at_ms)
}

/// Requests, with the error of the first unreadable one.
pub(crate) type Selected = (Vec<Entry>, Option<RequestError>);

/// The requests that this version can read.
pub(crate) fn readable((found, newer): Selected) -> Vec<Entry> {
    if let Some(error) = newer {
        tracing::warn!(%error, "a request cannot be read here, and is left as it is");
    }
    found
}

/// The order of requests with the same time.
///
/// Numbers in ids compare as numbers.
pub(crate) fn by_id(a: &Entry, b: &Entry) -> std::cmp::Ordering {
    alphanumeric_sort::compare_str(&a.id, &b.id).then_with(|| a.id.cmp(&b.id))
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The stored request, or an error if its format is newer.
fn known(id: &str, stored: Stored<Entry>) -> Result<Entry> {
    stored.known().map_err(|format| RequestError::NewerFormat { id: id.to_owned(), format })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_ids_are_ordered_as_numbers() {
        let entry = |id: &str| Entry::new(id, Request::default(), 1);
        let mut entries: Vec<Entry> =
            ["r10", "r2", "r1", "r11", "a/2/x", "a/12/x", "r02"].map(entry).into();
        entries.sort_by(by_id);
        let ids: Vec<&str> = entries.iter().map(|entry| &*entry.id).collect();
        assert_eq!(ids, ["a/2/x", "a/12/x", "r1", "r2", "r02", "r10", "r11"]);
    }
}
