//! One attempt of a transaction: what it read, what it wants to write, which locks it holds.
//!
//! From the first lock on, the writes of an attempt are carried out by tracked tasks that own it
//! (`Arc<Attempt>`), never by the caller's future: dropping that future stops nothing half way.

mod commit;
pub(crate) mod composition;
mod finish;
mod heartbeat;
mod hot_locks;
mod joining;
mod lock;
mod mutation;
pub(crate) mod nesting;
mod participants;
mod read;
mod receipt;
mod release;
pub(crate) mod seat;
mod single;
mod stage;
mod validate;
mod waiting;
mod want;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::config::Options;
use crate::engine::Engine;
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::deadline::Deadline;
use crate::engine::hot::board::UnderWay;
use crate::engine::in_doubt::Doubt;
use crate::engine::lock_queue::AttemptHandle;
use crate::engine::observe::ReadEntry;
use crate::engine::wait_reason::WaitReason;
use crate::error::Error;
use crate::event::Event;
use crate::store::{Key, Source, Version, Write, WriteOp};
use txn_protocol::document::{Stored, View};
use txn_protocol::ids::AttemptId;
use txn_protocol::machines::record::Slot;

use composition::Composition;
use joining::Components;
use seat::Seat;
use stage::Progress;

pub(crate) use mutation::{Edit, Mutation};
pub use receipt::Receipt;

#[derive(Debug, Default)]
struct Working {
    reads: BTreeMap<Key, ReadEntry>,
    writes: BTreeMap<Key, Mutation>,
    /// How many documents `reads` and `writes` have together.
    documents: usize,
}

impl Working {
    fn uses(&self, key: &Key) -> bool {
        self.reads.contains_key(key) || self.writes.contains_key(key)
    }

    /// Notes what was read of a document. What was read first stays, for the closure may have seen it.
    fn note_read(&mut self, key: Key, read: ReadEntry) {
        self.documents += usize::from(!self.uses(&key));
        self.reads.entry(key).or_insert(read);
    }

    fn retain(&mut self, stays: impl Fn(&Key) -> bool) {
        self.reads.retain(|key, _| stays(key));
        self.writes.retain(|key, _| stays(key));
        let only_read = self.reads.keys().filter(|key| !self.writes.contains_key(*key)).count();
        self.documents = self.writes.len() + only_read;
    }

    fn note_write(&mut self, key: Key, mutation: Mutation) {
        self.documents += usize::from(!self.uses(&key));
        self.writes.insert(key, mutation);
    }
}

/// A lock that was acknowledged.
#[derive(Clone, Debug)]
struct Held {
    /// The version of the lock itself.
    version: Version,
    /// The version it was conditioned on; none for a placeholder that was created.
    expected: Option<Version>,
    /// The document as it stands, without the lock. `absent` for a placeholder.
    before: Stored,
    /// As it stands, with the lock.
    source: Source,
    /// How many commits of this process have handed the document on since it was applied.
    depth: u8,
}

impl Held {
    /// Takes the lock off, and leaves the document as it stands.
    fn void(&self, key: &Key) -> Write {
        let op = match self.before.absent {
            true => WriteOp::Delete(self.version),
            false => WriteOp::Replace(self.before.encode(), self.version),
        };
        Write::new(key.clone(), op)
    }

    /// The document as it stands, under the lock of `tid`.
    fn view(&self, tid: AttemptId) -> View {
        let stored = self.before.locked_by(Some(tid));
        View::Present { version: self.version, source: self.source.clone(), stored }
    }
}

#[derive(Debug, Default)]
struct Locks {
    held: BTreeMap<Key, Held>,
    /// Documents for which a lock was sent whose outcome is not known.
    uncertain: BTreeSet<Key>,
}

pub(crate) struct Attempt {
    engine: Arc<Engine>,
    pub(crate) tid: AttemptId,
    handle: Arc<AttemptHandle>,
    pub(crate) options: Options,
    /// The attempts in whose closures it was begun.
    enclosing: Arc<[AttemptId]>,
    /// Lock at each read.
    pub(crate) pessimistic: bool,
    deadline: Deadline,
    /// Of the whole transaction, on the monotonic clock.
    ends_at: Duration,
    /// Of this attempt, until its commit is sent, on the monotonic clock.
    limit: Duration,
    working: Mutex<Working>,
    locks: Mutex<Locks>,
    /// One lock operation of the attempt at a time.
    locking: tokio::sync::Mutex<()>,
    slot: tokio::sync::Mutex<Slot>,
    /// Its commit by a record stays in the lists of documents until nobody of this process looks for it there.
    doubt: Mutex<Option<Doubt>>,
    progress: Progress,
    /// Somebody knows the tid and may ask what became of it: only a record can tell.
    asked: AtomicBool,
    /// Its closure saw what only a run by itself can show.
    pinned: AtomicBool,
    /// Reads from the cache of documents.
    recalls: bool,
    /// The caller commits by hand: no attempt follows.
    stepped: bool,
    hot: Participation,
    /// How long it waits for transactions of others, if not until its end.
    patience: Option<Duration>,
    heart: CancellationToken,
    beating: AtomicBool,
}

/// The part of an attempt in groups, and in the turn of its process.
#[derive(Debug, Default)]
struct Participation {
    /// The group in which its closure runs again, which the closure reads from.
    basis: Mutex<Option<Arc<Mutex<Composition>>>>,
    /// Its place in the queue of this process.
    seat: Seat,
    /// The transactions that it commits.
    components: Mutex<Components>,
    /// It locks, commits or releases: the turn of its process does not end before.
    under_way: Mutex<Option<UnderWay>>,
}

/// How an attempt goes about it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manner {
    /// Lock at each read.
    pub(crate) pessimistic: bool,
    /// Read from the cache of documents.
    pub(crate) recalls: bool,
    /// The caller commits by hand: no attempt follows.
    pub(crate) stepped: bool,
    /// How long to wait for transactions of others, if not until the end.
    pub(crate) patience: Option<Duration>,
}

impl Attempt {
    pub(crate) fn begin(
        engine: Arc<Engine>,
        tid: AttemptId,
        options: Options,
        manner: Manner,
        ends_at: Duration,
    ) -> Arc<Self> {
        let Manner { pessimistic, recalls, stepped, patience } = manner;
        let handle = engine.live_attempts.register(tid);
        let limit = engine.now() + engine.config.transaction_limit;
        let deadline = Deadline::of_attempt(ends_at, limit, handle.clone());
        engine.emit(&Event::Started { tid });
        Arc::new(Self {
            engine,
            tid,
            handle,
            options,
            enclosing: crate::attempt::nesting::enclosing(),
            pessimistic,
            deadline,
            ends_at,
            limit,
            working: Mutex::default(),
            locks: Mutex::default(),
            locking: tokio::sync::Mutex::default(),
            slot: tokio::sync::Mutex::default(),
            doubt: Mutex::default(),
            progress: Progress::default(),
            asked: AtomicBool::new(false),
            pinned: AtomicBool::new(false),
            recalls,
            stepped,
            hot: Participation::default(),
            patience,
            heart: CancellationToken::new(),
            beating: AtomicBool::new(false),
        })
    }

    /// Runs `work`, which commits nothing, as a tracked task that goes on when the caller is dropped.
    pub(crate) fn spawn_tracked<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = Result<T, AttemptError>> + Send + 'static,
    ) -> impl Future<Output = Result<T, AttemptError>> {
        let task = self.engine.lifecycle.spawn(work);
        let panicked = |join: tokio::task::JoinError| {
            let why = match join.is_panic() {
                true => "a task of the engine panicked",
                false => "the runtime of a task of the engine has ended",
            };
            AttemptError::Fail(Error::unavailable(why).because(join))
        };
        self.by_deadline(async move { task.await.map_err(panicked)? })
    }

    /// Waits for `work` until the deadline and not longer, whatever the store does.
    pub(crate) async fn by_deadline<T>(
        &self,
        work: impl Future<Output = Result<T, AttemptError>>,
    ) -> Result<T, AttemptError> {
        self.engine.within(self.ends_at.saturating_sub(self.engine.now()), work).await
    }

    /// Ends the attempt without a commit, and takes its locks off. Returns once that is done, or the deadline passed;
    /// it goes on then, and when the caller is dropped.
    pub(crate) async fn roll_back(self: &Arc<Self>, why: String, retried: bool) {
        if self.progress.conclude() {
            self.release_by_deadline(why, retried).await;
        }
    }

    async fn release_by_deadline(self: &Arc<Self>, why: String, retried: bool) {
        let this = self.clone();
        let release = async move {
            this.release(&why, retried).await;
            Ok(())
        };
        if let Err(error) = self.spawn_tracked(release).await {
            tracing::warn!(tid = %self.tid, why = %error.into_error(), "locks are taken off later");
        }
    }

    /// The attempt came to its limit while its caller was busy with something else: its heart stops, and its locks are
    /// given back. The caller finds out with its next call.
    fn expire(self: &Arc<Self>) {
        if !self.progress.conclude() {
            return;
        }
        self.handle.expire();
        let this = self.clone();
        self.engine.lifecycle.spawn(async move {
            this.release(&RetryReason::Expired(None).to_string(), true).await;
        });
    }

    /// Fails if no time is left for what comes next.
    fn check_time(&self) -> Result<(), AttemptError> {
        let reason = WaitReason::Store("no time is left".to_owned());
        self.deadline.left(&*self.engine.config.clock, &reason).map(drop)
    }

    /// The answer to a call that comes after the end.
    fn over(&self) -> AttemptError {
        match self.handle.expired.load(Ordering::Acquire) {
            true => AttemptError::Retry(RetryReason::Expired(None)),
            false => Error::unavailable("the transaction is over").into(),
        }
    }

    /// The id of the attempt, for somebody who may ask what became of it.
    pub(crate) fn tid_to_ask_for(&self) -> AttemptId {
        self.asked.store(true, Ordering::Release);
        self.tid
    }

    /// The caller is gone: stop as soon as possible, and take the locks off.
    pub(crate) fn abandon(self: &Arc<Self>) {
        if !self.progress.conclude() {
            return;
        }
        self.handle.cancel();
        // What waited in vain holds nothing, but its heart may beat.
        if !self.may_hold_locks() && !self.beating.load(Ordering::Acquire) {
            self.engine.live_attempts.forget(self.tid);
            return;
        }
        self.heart.cancel();
        let this = self.clone();
        let release = async move { this.release("its caller went away", false).await };
        // Whoever drops a handle need not be in a runtime.
        self.engine.lifecycle.spawn_from_anywhere(release);
    }

    fn may_hold_locks(&self) -> bool {
        let locks = self.locks.lock();
        !locks.held.is_empty() || !locks.uncertain.is_empty() || self.locking.try_lock().is_err()
    }

    /// Notes what the closure wants of a document. Refused, it changes nothing.
    pub(crate) fn buffer(&self, key: &Key, mutation: Edit) -> Result<(), Error> {
        if self.options.read_only {
            return Err(Error::invalid("the transaction is read-only").at(key));
        }
        let size = mutation.image().map_or(0, |image| image.as_str().len());
        self.engine.limits().check(key, size + RESERVED_BYTES).map_err(|refusal| {
            let kind = crate::ErrorKind::from(&refusal);
            Error::new(kind, format!("cannot write it: {}", refusal.reason)).at(key)
        })?;
        let head = self.head_of(key)?;
        let mut working = self.working.lock();
        let mutation = Mutation::after(working.writes.get(key), mutation);
        let mutation = mutation.ok_or_else(|| Self::exists(key))?;
        let used = [Some(key), head.as_ref()].into_iter().flatten();
        self.check_count(&working, used.filter(|key| !working.uses(key)).count())?;
        working.note_write(key.clone(), mutation);
        if let Some(head) = head {
            // What it becomes is known under the locks.
            working.note_write(head, Mutation::Put(participants::stand_in()));
        }
        Ok(())
    }

    /// Whether so many more documents are within the limit.
    fn check_count(&self, working: &Working, more: usize) -> Result<(), Error> {
        let most = self.engine.config.max_documents;
        if working.documents + more > most {
            return Err(Error::invalid(format!(
                "the transaction uses more than {most} documents: raise max_documents or split it"
            )));
        }
        Ok(())
    }

    /// Refuses to wait for a transaction that goes on only when this one has ended.
    fn refuse_to_wait_for_oneself(&self, key: &Key, holder: AttemptId) -> Result<(), Error> {
        if !self.enclosing.contains(&holder) {
            return Ok(());
        }
        let message = format!(
            "the transaction {holder} holds it, in whose closure this one is nested: they would wait for each other; use \
             the outer transaction for it, or begin this one outside of the closure"
        );
        Err(Error::invalid(message).at(key).in_transaction(self.tid))
    }

    /// The end of the whole transaction, on the monotonic clock.
    pub(crate) fn ends_at(&self) -> Duration {
        self.ends_at
    }

    /// Whether the aliases by which the collections of its documents were opened still stand for
    /// them.
    pub(crate) async fn confirm_aliases(&self) -> Result<(), Error> {
        let collections = || {
            let working = self.working.lock();
            let keys = working.reads.keys().chain(working.writes.keys());
            keys.map(|key| key.collection.clone()).collect()
        };
        self.engine.confirm_aliases(collections).await
    }

    pub(crate) fn has_writes(&self) -> bool {
        !self.working.lock().writes.is_empty()
    }
}

/// An attempt that nobody works on any more holds nothing up, however it ended: also by a panic.
impl Drop for Attempt {
    fn drop(&mut self) {
        self.engine.live_attempts.forget(self.tid);
    }
}

/// Room for the reserved fields beside a document's own content.
const RESERVED_BYTES: usize = 4 * 1024;
