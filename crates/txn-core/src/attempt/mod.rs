//! One attempt of a transaction: its reads, its mutations, and its locks.
//!
//! From the first lock on, tracked tasks own the attempt (`Arc<Attempt>`) and carry out its writes.
//! A caller that drops its future stops no write half way.

pub(crate) mod committing;
mod grouping;
mod heartbeat;
pub(crate) mod locking;
pub(crate) mod merging;
mod mutation;
pub(crate) mod nesting;
mod read;
mod receipt;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::config::Options;
use crate::engine::SharedEngine;
use crate::engine::apply::recent_commits::Doubt;
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::deadline::Deadline;
use crate::engine::hot::board::UnderWay;
use crate::engine::live_attempts::AttemptHandle;
use crate::engine::read_entry::ReadEntry;
use crate::engine::signals::label::named;
use crate::engine::wait_reason::WaitReason;
use crate::error::{Error, ErrorKind};
use crate::event::{AbortReason, Event};
use txn_protocol::document::{Stored, View};
use txn_protocol::ids::{AttemptId, CommitVersion};
use txn_protocol::machines::record::RecordWriter;
use txn_store::{Key, Source, Version, Write, WriteOp};

use committing::participants::{head_of, stand_in};
use committing::rollback::{Why, release};
use locking::validate;
use merging::members::Members;
use merging::reservation::Reservations;
use merging::serial_batch::SerialBatch;
use state::AttemptState;

pub(crate) use mutation::{Edit, Mutation};
pub use receipt::Receipt;

#[derive(Debug, Default)]
struct ReadWriteSet {
    reads: BTreeMap<Key, ReadEntry>,
    writes: BTreeMap<Key, Mutation>,
    /// The read documents whose commit versions the closure knows.
    known_versions: BTreeSet<Key>,
    /// The number of different documents in `reads` and `writes`.
    documents: usize,
}

impl ReadWriteSet {
    fn uses(&self, key: &Key) -> bool {
        self.reads.contains_key(key) || self.writes.contains_key(key)
    }

    /// Notes the entry of a document.
    ///
    /// The first entry stays, because the closure may have seen it.
    fn note_read(&mut self, key: Key, read: ReadEntry) {
        self.documents += usize::from(!self.uses(&key));
        self.reads.entry(key).or_insert(read);
    }

    fn retain(&mut self, stays: impl Fn(&Key) -> bool) {
        self.reads.retain(|key, _| stays(key));
        self.writes.retain(|key, _| stays(key));
        self.known_versions.retain(|key| stays(key));
        let only_read = self.reads.keys().filter(|key| !self.writes.contains_key(*key)).count();
        self.documents = self.writes.len() + only_read;
    }

    fn note_write(&mut self, key: Key, mutation: Mutation) {
        self.documents += usize::from(!self.uses(&key));
        self.writes.insert(key, mutation);
    }
}

/// An acknowledged lock.
#[derive(Clone, Debug)]
struct HeldLock {
    /// The version of the document with the lock.
    version: Version,
    /// The expected version of the lock write; `None` for a placeholder.
    expected: Option<Version>,
    /// The document without the lock; `absent` for a placeholder.
    before: Stored,
    /// The stored document with the lock.
    source: Source,
    /// The number of hand-offs since the last apply of the document.
    depth: u8,
}

impl HeldLock {
    /// Returns the write that releases the lock and changes nothing else.
    fn void(&self, key: &Key) -> Write {
        let op = match self.before.absent {
            true => WriteOp::Delete(self.version),
            false => WriteOp::Replace(self.before.encode(), self.version),
        };
        Write::new(key.clone(), op)
    }

    /// Returns the document with the lock of `tid`.
    fn view(&self, tid: AttemptId) -> View {
        let stored = self.before.locked_by(Some(tid));
        View::Present { version: self.version, source: self.source.clone(), stored }
    }
}

#[derive(Debug, Default)]
struct Locks {
    held: BTreeMap<Key, HeldLock>,
    /// Documents whose lock was sent, with an unknown outcome.
    uncertain: BTreeSet<Key>,
}

pub(crate) struct Attempt {
    engine: SharedEngine,
    pub(crate) tid: AttemptId,
    handle: Arc<AttemptHandle>,
    pub(crate) options: Options,
    /// The attempts in whose closures this attempt began.
    enclosing: Arc<[AttemptId]>,
    /// Lock at each read.
    pub(crate) pessimistic: bool,
    deadline: Deadline,
    /// The end of the whole transaction, on the monotonic clock.
    ends_at: Duration,
    working: Mutex<ReadWriteSet>,
    locks: Mutex<Locks>,
    /// Allows one lock operation at a time.
    locking: tokio::sync::Mutex<()>,
    record_writer: tokio::sync::Mutex<RecordWriter>,
    /// Keeps the commit version in the lists of documents.
    ///
    /// This process may still search a list for the version.
    doubt: Mutex<Option<Doubt>>,
    progress: AttemptState,
    /// Whether an event has reported the outcome as unknown.
    is_unknown: AtomicBool,
    /// Whether the closure used something that no group can provide.
    is_solo: AtomicBool,
    /// Whether reads use the document cache.
    uses_cache: bool,
    /// The caller commits by hand: no attempt follows.
    is_manual: bool,
    hot: GroupState,
    /// How long the attempt waits for other transactions; `None` until its end.
    patience: Option<Duration>,
    heart: CancellationToken,
    beating: AtomicBool,
    /// The span of the transaction, the parent of the spans of this attempt.
    span: Span,
}

/// The part of an attempt in groups and turns.
#[derive(Debug, Default)]
struct GroupState {
    /// The batch from which a further run of the closure reads.
    batch: Mutex<Option<Arc<Mutex<SerialBatch>>>>,
    /// The reservations in the queue of this process.
    reservations: Reservations,
    /// The transactions that this attempt commits.
    members: Members,
    /// Prolongs the turn of the process until apply or release.
    under_way: Mutex<Option<UnderWay>>,
}

/// How an attempt reads, retries and waits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AttemptMode {
    /// Lock at each read.
    pub(crate) pessimistic: bool,
    /// Read from the document cache.
    pub(crate) uses_cache: bool,
    /// The caller commits by hand: no attempt follows.
    pub(crate) is_manual: bool,
    /// How long to wait for other transactions; `None` until the end.
    pub(crate) patience: Option<Duration>,
}

impl Attempt {
    pub(crate) fn begin(
        engine: SharedEngine,
        tid: AttemptId,
        options: Options,
        mode: AttemptMode,
        ends_at: Duration,
        span: &Span,
    ) -> Arc<Self> {
        let AttemptMode { pessimistic, uses_cache, is_manual, patience } = mode;
        let limit = engine.context.now() + engine.context.config.attempt_timeout;
        let handle = engine.live_attempts.register(tid, options.label.clone(), limit);
        let deadline = Deadline::of_attempt(ends_at, handle.clone());
        engine.context.emit(&Event::Started { tid, label: options.label.clone() });
        Arc::new(Self {
            engine,
            tid,
            handle,
            options,
            enclosing: crate::attempt::nesting::enclosing(),
            pessimistic,
            deadline,
            ends_at,
            working: Mutex::default(),
            locks: Mutex::default(),
            locking: tokio::sync::Mutex::default(),
            record_writer: tokio::sync::Mutex::default(),
            doubt: Mutex::default(),
            progress: AttemptState::default(),
            is_unknown: AtomicBool::new(false),
            is_solo: AtomicBool::new(false),
            uses_cache,
            is_manual,
            hot: GroupState::default(),
            patience,
            heart: CancellationToken::new(),
            beating: AtomicBool::new(false),
            span: span.clone(),
        })
    }

    /// Commits in a tracked task, which survives a dropped caller.
    pub(crate) async fn commit(self: &Arc<Self>) -> Result<Receipt, AttemptError> {
        committing::commit::commit(self).await
    }

    /// Validates the reads of a closure that failed.
    ///
    /// The error of the closure may rest on reads of different states.
    pub(crate) async fn examine(self: &Arc<Self>) -> Result<(), AttemptError> {
        validate::examine(self).await
    }

    /// Runs `work` as a tracked task, which survives a dropped caller.
    ///
    /// `work` must not commit.
    pub(crate) fn spawn_tracked<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = Result<T, AttemptError>> + Send + 'static,
    ) -> impl Future<Output = Result<T, AttemptError>> {
        let task = self.engine.context.lifecycle.spawn(work);
        let panicked = |join: tokio::task::JoinError| {
            let why = match join.is_panic() {
                true => "a task of the engine panicked",
                false => "the runtime of a task of the engine has ended",
            };
            AttemptError::Fail(Error::unavailable(why).because(join))
        };
        self.by_deadline(async move { task.await.map_err(panicked)? })
    }

    /// Waits for `work` until the deadline, even if the store hangs.
    pub(crate) async fn by_deadline<T>(
        &self,
        work: impl Future<Output = Result<T, AttemptError>>,
    ) -> Result<T, AttemptError> {
        self.engine
            .context
            .within(self.ends_at.saturating_sub(self.engine.context.now()), work)
            .await
    }

    /// Ends the attempt without a commit, and releases its locks.
    ///
    /// Returns after the release or at the deadline. The release continues after the deadline, and
    /// after the caller is dropped.
    pub(crate) async fn roll_back(self: &Arc<Self>, why: Why) {
        if self.progress.conclude() {
            self.release_by_deadline(why).await;
        }
    }

    async fn release_by_deadline(self: &Arc<Self>, why: Why) {
        let this = self.clone();
        let release = async move {
            release(&this, why).await;
            Ok(())
        };
        if let Err(error) = self.spawn_tracked(release).await {
            tracing::warn!(tid = %self.tid, why = %error.into_error(), "locks are taken off later");
        }
    }

    /// Ends the attempt at its time limit, without its caller.
    ///
    /// The heartbeat stops, and the locks are released. The next call of the caller fails.
    fn expire(self: &Arc<Self>) {
        if !self.progress.conclude() {
            return;
        }
        self.handle.expire();
        let this = self.clone();
        self.engine.context.lifecycle.spawn(async move {
            release(&this, Why::retried(&RetryReason::Expired(None))).await;
        });
    }

    /// Fails if the time of the attempt is over.
    fn check_time(&self) -> Result<(), AttemptError> {
        let reason = WaitReason::Store("no time is left".to_owned());
        self.deadline.left(&*self.engine.context.config.clock, &reason).map(drop)
    }

    /// Returns the error of a call after the end.
    fn over(&self) -> AttemptError {
        match self.handle.expired.load(Ordering::Acquire) {
            true => AttemptError::Retry(RetryReason::Expired(None)),
            false => Error::unavailable("the transaction is over").into(),
        }
    }

    /// Returns the tid, if the outcome of this attempt can be looked up by it.
    pub(crate) fn own_tid(&self) -> Option<AttemptId> {
        self.options.own_record.then_some(self.tid)
    }

    /// Ends the attempt as soon as possible, because its caller is gone.
    pub(crate) fn abandon(self: &Arc<Self>) {
        if !self.progress.conclude() {
            return;
        }
        self.handle.cancel();
        // An attempt that only waited holds no lock, but may have a heartbeat.
        if !self.may_hold_locks() && !self.beating.load(Ordering::Acquire) {
            self.engine.live_attempts.forget(self.tid);
            return;
        }
        self.heart.cancel();
        let this = self.clone();
        let why = Why::ended(AbortReason::Abandoned, "its caller went away");
        let release = async move { release(&this, why).await };
        // A handle may be dropped outside of any runtime.
        self.engine.context.lifecycle.spawn_from_anywhere(release);
    }

    fn may_hold_locks(&self) -> bool {
        let locks = self.locks.lock();
        !locks.held.is_empty() || !locks.uncertain.is_empty() || self.locking.try_lock().is_err()
    }

    /// Buffers one call of the closure. A refused call changes nothing.
    pub(crate) fn buffer(&self, key: &Key, mutation: Edit) -> Result<(), Error> {
        if self.options.read_only {
            return Err(Error::invalid("the transaction is read-only").at(key));
        }
        let size = mutation.image().map_or(0, |image| image.as_str().len());
        self.engine.store.limits().check(key, size + RESERVED_BYTES).map_err(|refusal| {
            let kind = crate::ErrorKind::from(&refusal);
            Error::new(kind, format!("cannot write it: {}", refusal.reason)).at(key)
        })?;
        let head = head_of(self, key)?;
        let mut working = self.working.lock();
        let mutation = Mutation::after(working.writes.get(key), mutation);
        let mutation = mutation.ok_or_else(|| Self::exists(key))?;
        let used = [Some(key), head.as_ref()].into_iter().flatten();
        self.check_count(&working, used.filter(|key| !working.uses(key)).count())?;
        working.note_write(key.clone(), mutation);
        if let Some(head) = head {
            // The content of the head is known under the locks.
            working.note_write(head, Mutation::Put(stand_in()));
        }
        Ok(())
    }

    /// Refuses more documents than the limit.
    fn check_count(&self, working: &ReadWriteSet, more: usize) -> Result<(), Error> {
        let most = self.engine.context.config.max_documents;
        if working.documents + more > most {
            return Err(Error::invalid(format!(
                "the transaction uses more than {most} documents: raise max_documents or split it"
            )));
        }
        Ok(())
    }

    /// Refuses to wait for an outer transaction, which waits for this one.
    fn refuse_to_wait_for_oneself(&self, key: &Key, holder: AttemptId) -> Result<(), Error> {
        if !self.enclosing.contains(&holder) {
            return Ok(());
        }
        let outer = named(holder, self.engine.contention.label_of(holder).as_deref());
        let message = format!(
            "the transaction {outer} holds it, in whose closure this one is nested: they would wait for each other; use \
             the outer transaction for it, or begin this one outside of the closure"
        );
        Err(Error::invalid(message).at(key).in_transaction(self.tid))
    }

    /// Excludes a wait in a group's queue from the attempt's time.
    pub(crate) fn exclude_wait(&self, waited: Duration) {
        self.handle.exclude_wait(waited);
    }

    /// The end of the whole transaction, on the monotonic clock.
    pub(crate) fn ends_at(&self) -> Duration {
        self.ends_at
    }

    /// Checks that each alias still names the collection opened by this alias.
    pub(crate) async fn confirm_aliases(&self) -> Result<(), Error> {
        let collections = || {
            let working = self.working.lock();
            let keys = working.reads.keys().chain(working.writes.keys());
            keys.map(|key| key.collection.clone()).collect()
        };
        self.engine.aliases.confirm_aliases(collections).await
    }

    /// The span of the transaction.
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    pub(crate) fn has_writes(&self) -> bool {
        !self.working.lock().writes.is_empty()
    }

    /// The error of an insert of an existing document.
    pub(crate) fn exists(key: &Key) -> Error {
        Error::new(ErrorKind::Exists, "cannot insert it: it exists already").at(key)
    }

    /// Returns the receipt, as far as it is known at the commit.
    pub(in crate::attempt) fn receipt(
        &self,
        tid: Option<AttemptId>,
        commit_version: Option<CommitVersion>,
    ) -> Receipt {
        let attempts = u32::from(self.tid.attempt()) + 1;
        Receipt { tid, commit_version, attempts, applied: false }
    }

    /// Returns a version later than all read and overwritten versions.
    pub(in crate::attempt) async fn commit_version(&self) -> Result<CommitVersion, Error> {
        let read = {
            let working = self.working.lock();
            working.reads.values().filter_map(|read| read.observed.commit_version).max()
        };
        let held =
            self.locks.lock().held.values().filter_map(|held| held.before.commit_version).max();
        self.engine.time.commit_version(Some(self.tid), read.max(held)).await
    }

    /// Reports once that the caller cannot learn the outcome now.
    pub(in crate::attempt) fn note_unknown(&self) {
        if !self.is_unknown.swap(true, Ordering::AcqRel) {
            self.engine.context.emit(&Event::Unknown { tid: self.tid });
        }
    }

    /// The error for a commit with an unknown outcome.
    pub(in crate::attempt) fn in_doubt(&self, error: AttemptError) -> AttemptError {
        self.note_unknown();
        let why = error.into_error();
        let message = format!(
            "the commit was sent and not acknowledged; ask for its outcome by its tid before running it again: {why}"
        );
        AttemptError::Fail(Error::new(ErrorKind::Unknown, message).in_transaction(self.tid))
    }
}

/// No transaction waits for a dropped attempt, even after a panic.
impl Drop for Attempt {
    fn drop(&mut self) {
        self.engine.live_attempts.forget(self.tid);
    }
}

/// Room for the reserved fields of a document, in bytes.
const RESERVED_BYTES: usize = 4 * 1024;
