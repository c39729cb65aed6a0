//! The commit of an attempt: locks, validation, and the deciding write.
//!
//! A tracked task runs these steps and the apply after them.

use std::collections::BTreeMap;
use std::mem::take;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use tokio::sync::oneshot;

use tokio_util::sync::CancellationToken;

use crate::attempt::committing::participants::{HEAD_BYTES, Participants, participant_of};
use crate::attempt::receipt::Receipt;
use crate::attempt::state::{CommitKind, Stage};
use crate::attempt::{Attempt, Mutation, ReadEntry};
use crate::config::WaitFor;
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::deadline::Deadline;
use crate::engine::store::settle::{Because, Place, Settled};
use crate::engine::table::partitions::Partition;
use crate::engine::table::record_lookup::RecordLookup;
use crate::engine::table::records::{RecordOf, settled_version};
use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::store::{Key, Outcome, Refusal, RefusalKind, Version, Write, WriteOp};
use txn_protocol::document::{Image, Stored, View};
use txn_protocol::ids::{AttemptId, CommitVersion};
use txn_protocol::machines::attempt::{Footprint, Phase, operation};
use txn_protocol::machines::invariant::{Invariant, check_commit_version, check_order};
use txn_protocol::machines::record::{Commit, Decision};
use txn_protocol::record::{Op, Participant, Record, State};
use txn_protocol::rule::Rule;

/// A committed record, with the participants as the acknowledged locks show them.
pub(in crate::attempt) struct CommittedRecord {
    pub(in crate::attempt) record: Arc<Record>,
    /// The version of the committed record.
    pub(in crate::attempt) version: Version,
    /// The version of the record, unless another process may have seen it committed earlier.
    pub(in crate::attempt) first: Option<Version>,
    pub(in crate::attempt) known: BTreeMap<Key, View>,
}

impl Attempt {
    /// Commits in a tracked task, which survives a dropped caller.
    pub(crate) async fn commit(self: &Arc<Self>) -> Result<Receipt, AttemptError> {
        if !self.progress.conclude() {
            return Err(self.over());
        }
        let (reply_to, reply) = oneshot::channel();
        let this = self.clone();
        self.engine.context.lifecycle.spawn(async move {
            let mut unended = Unended(Some(this.clone()));
            let run = AssertUnwindSafe(this.run_commit(reply_to));
            if run.catch_unwind().await.is_err() {
                this.give_up().await;
            }
            unended.0 = None;
        });
        match self.by_deadline(async { Ok(reply.await) }).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => self.cut_short(
                "the task of its commit panicked, or the runtime of that task has ended",
            ),
            Err(_) => self.cut_short("the store did not answer before the deadline"),
        }
    }

    /// Returns the answer for a caller that cannot wait for the commit.
    ///
    /// A commit that was not sent yet will never be sent. An acknowledged commit is reported as
    /// committed and not yet applied.
    fn cut_short(&self, why: &str) -> Result<Receipt, AttemptError> {
        if self.progress.close() {
            self.handle.cancel();
            return Err(Error::unavailable(why).into());
        }
        let single = || self.working.lock().writes.keys().next().cloned();
        match self.progress.stage() {
            Stage::Committed(receipt) => Ok(receipt),
            Stage::Sent(CommitKind::Single) | Stage::Released(Some(CommitKind::Single))
                if let Some(key) = single() =>
            {
                Err(crate::engine::apply::single_write::unknown(&key, &Error::unavailable(why)))
            }
            _ => Err(self.in_doubt(Error::unavailable(why).into())),
        }
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

    /// Ends an attempt whose commit panicked.
    ///
    /// A commit that may have been sent is left to other transactions.
    async fn give_up(self: &Arc<Self>) {
        tracing::error!(tid = %self.tid, "a task of the engine panicked");
        if self.progress.close() {
            return self.release("a task of the engine panicked", false).await;
        }
        self.leave_to_others();
    }

    /// Leaves the locks to other transactions, because the commit may land.
    ///
    /// A transaction that finds the locks recovers the attempt.
    pub(in crate::attempt) fn leave_to_others(&self) {
        self.engine.context.lifecycle.leave_over();
        self.progress.release();
        self.heart.cancel();
        self.engine.live_attempts.forget(self.tid);
        self.hot.reservations.leave();
        self.hot.under_way.lock().take();
        let locks = self.locks.lock();
        self.engine.live_attempts.release(locks.held.keys().chain(&locks.uncertain));
    }

    async fn run_commit(
        self: &Arc<Self>,
        reply_to: oneshot::Sender<Result<Receipt, AttemptError>>,
    ) {
        let receipt =
            |tid, commit_version, applied| Receipt { applied, ..self.receipt(tid, commit_version) };
        // The commit continues even if the caller is gone, because the record has the outcome.
        let say = |result| drop(reply_to.send(result));
        match self.commit_inner().await {
            Ok(CommitOutcome::Nothing) => {
                self.release_by_deadline("it only read".to_owned(), false).await;
                say(Ok(receipt(None, None, true)));
            }
            Ok(CommitOutcome::Single(single)) => {
                let result = self.commit_single(&single).await;
                self.engine.live_attempts.forget(self.tid);
                self.progress.release();
                say(match result {
                    Ok(commit) => {
                        self.refresh_if_asked([&single.key]).await;
                        Ok(receipt(None, Some(commit), true))
                    }
                    Err(error) => Err(error),
                });
            }
            Ok(CommitOutcome::CommittedRecord(committed)) => {
                let commit = committed.record.commit_version;
                self.remember(&committed);
                self.hot.reservations.free_slot();
                if self.options.wait_for == WaitFor::Commit {
                    say(Ok(receipt(Some(self.tid), commit, false)));
                    self.complete(*committed, true).await;
                } else {
                    let applied = self.complete(*committed, false).await;
                    say(Ok(receipt(Some(self.tid), commit, applied)));
                }
            }
            Err(AttemptError::Fail(error)) if error.kind() == ErrorKind::Unknown => {
                self.leave_to_others();
                say(Err(AttemptError::Fail(error.in_transaction(self.tid))));
            }
            Err(error) => {
                let (why, retried) = match &error {
                    AttemptError::Retry(reason) => (reason.to_string(), true),
                    AttemptError::Fail(error) => (error.to_string(), false),
                };
                self.release_by_deadline(why, retried).await;
                say(Err(error));
            }
        }
        self.hot.reservations.leave();
    }

    /// Caches the committed contents, which are still in the record only.
    fn remember(&self, committed: &CommittedRecord) {
        let record = &committed.record;
        let Some(commit) = record.commit_version else { return };
        let now = self.engine.context.now();
        for (participant, image) in record.participants.iter().zip(&record.images) {
            let key = participant.key();
            match (participant.op, image) {
                (Op::Write | Op::Insert, Some(image)) => {
                    self.engine.hot.cache.committed(&key, record.tid, commit, image.clone(), now);
                }
                (Op::Delete, _) => self.engine.hot.cache.forget(&key),
                (Op::Read, _) | (Op::Write | Op::Insert, None) => {}
            }
        }
    }

    /// Runs all steps up to and including the commit point.
    async fn commit_inner(self: &Arc<Self>) -> Result<CommitOutcome, AttemptError> {
        let _one_at_a_time = self.locking.lock().await;
        match self.lock_and_commit().await {
            // The refused content may rest on reads of different states. The state under one lock
            // may be newer than the loss of another lock.
            Err(AttemptError::Fail(error))
                if matches!(error.kind(), ErrorKind::Exists | ErrorKind::Invalid) =>
            {
                self.validate_all().await?;
                Err(error.into())
            }
            result => result,
        }
    }

    async fn lock_and_commit(self: &Arc<Self>) -> Result<CommitOutcome, AttemptError> {
        self.check_time()?;
        let (reads, mut writes) = {
            let working = self.working.lock();
            (working.reads.clone(), working.writes.clone())
        };
        if !writes.is_empty() {
            self.engine.time.confirm_clock().await?;
        }
        let written: Vec<Key> = writes.keys().cloned().collect();
        let _wanted = self.wait_for_turn(&written, &CancellationToken::new()).await?;
        if !self.is_recorded()
            && let Some(single) = self.single_document(&reads, &writes).await?
        {
            return Ok(CommitOutcome::Single(Box::new(single)));
        }
        let held = self.locks.lock().held.clone();
        let mut wanted: BTreeMap<Key, Option<ReadEntry>> = writes
            .keys()
            .filter(|key| !held.contains_key(*key))
            .map(|key| (key.clone(), reads.get(key).cloned()))
            .collect();
        let mut only_read: BTreeMap<Key, ReadEntry> = reads
            .into_iter()
            .filter(|(key, _)| !held.contains_key(key) && !writes.contains_key(key))
            .collect();
        wanted.append(&mut self.take_reads_to_lock(&mut only_read, !writes.is_empty()));
        let mut checks = self.dry_runs(&writes)?;
        self.check_record_size(&wanted, &writes)?;
        self.check_day().await?;
        let mut phase = Phase::Reading;
        loop {
            let before = phase;
            phase = phase.next(
                &self.engine.context.rules,
                Footprint {
                    to_lock: !wanted.is_empty() || !checks.is_empty(),
                    to_validate: !only_read.is_empty(),
                    commits: self.is_recorded() || self.changes_anything(&writes),
                },
            );
            let first = !self.engine.context.rules.decides(Rule::ValidateAfterLocks);
            check_order(before, phase, first).map_err(|broken| self.broken(broken))?;
            match phase {
                Phase::Locking => {
                    let (wanted, checks) = (take(&mut wanted), take(&mut checks));
                    self.acquire(wanted, checks, &CancellationToken::new()).await?;
                    self.drop_evicted(&mut only_read, &mut writes);
                }
                Phase::Validating => {
                    self.validate_all_that_is_left(take(&mut only_read)).await?;
                    self.drop_evicted(&mut only_read, &mut writes);
                }
                Phase::Verifying => {
                    // Nothing to commit: the proof that all locks were held at once is enough.
                    self.verify_locks().await?;
                    return Ok(CommitOutcome::Nothing);
                }
                Phase::Reading | Phase::Committing => break,
            }
        }
        // The lock of an abandoned read may exist, or land later, and the record would not name
        // this lock.
        if let Some(key) = self.locks.lock().uncertain.first() {
            cov_mark::hit!(commit_beside_an_uncertain_lock);
            return Err(AttemptError::Retry(RetryReason::Changed(key.clone())));
        }
        let mut participants = loop {
            match self.participants(&writes) {
                Err(error) if error.document().is_some_and(|key| self.evict_for(&error, key)) => {
                    self.drop_evicted(&mut only_read, &mut writes);
                }
                participants => break participants?,
            }
        };
        // No member can leave after this point.
        self.close_membership();
        let before = writes.len();
        self.drop_evicted(&mut only_read, &mut writes);
        if writes.len() < before {
            participants = self.participants(&writes)?;
        }
        let Participants { list: participants, images, known, past } = participants;
        self.keep(past).await?;
        let (record, commit) = self.deciding_record(participants, images).await?;
        let (version, first) = self.commit_record(&record).await?;
        let record = Arc::new(record);
        Ok(self.on_committed(CommittedRecord { record, version, first, known }, commit))
    }

    /// Builds the committing record, and the version of its writes.
    async fn deciding_record(
        &self,
        participants: Vec<Participant>,
        images: Vec<Option<Image>>,
    ) -> Result<(Record, CommitVersion), AttemptError> {
        let commit = self.commit_version().await?;
        *self.doubt.lock() = Some(self.engine.recent.begin(commit));
        let overwritten = participants.iter().map(|participant| participant.before);
        check_commit_version(commit, overwritten).map_err(|broken| self.broken(broken))?;
        let record = Record {
            commit_version: Some(commit),
            participants,
            images,
            metadata: self.options.metadata.clone(),
            ..self.engine.table.new_record(self.tid, State::Committed)
        };
        Ok((record, commit))
    }

    /// Announces the commit after its acknowledgement.
    fn on_committed(
        &self,
        committed: CommittedRecord,
        commit_version: CommitVersion,
    ) -> CommitOutcome {
        let (tid, participants) = (self.tid, &committed.record.participants);
        let written = participants.iter().filter(|it| it.op != Op::Read).count();
        self.progress.committed(self.receipt(Some(tid), Some(commit_version)));
        self.engine
            .hot
            .board
            .committed(participants.iter().map(Participant::key), self.engine.context.now());
        if let Some(under_way) = &mut *self.hot.under_way.lock() {
            under_way.recorded();
        }
        self.engine.context.emit(&Event::Committed { tid, commit_version, written });
        CommitOutcome::CommittedRecord(Box::new(committed))
    }

    /// Validates the remaining reads.
    ///
    /// Members that read a changed document are evicted, if other members remain.
    async fn validate_all_that_is_left(
        self: &Arc<Self>,
        mut reads: BTreeMap<Key, ReadEntry>,
    ) -> Result<(), AttemptError> {
        loop {
            match self.validate(reads.clone()).await {
                Err(AttemptError::Retry(reason))
                    if reason.document().is_some_and(|key| self.evict(key, &reason)) =>
                {
                    reads.retain(|key, _| !self.is_evicted(key));
                }
                result => return result,
            }
        }
    }

    /// Evicts the members that insert an existing document, if other members remain.
    ///
    /// A run without a group then shows which member is refused.
    fn evict_for(&self, error: &Error, key: &Key) -> bool {
        error.kind() == ErrorKind::Exists && self.evict(key, &RetryReason::LeftGroup)
    }

    fn drop_evicted(
        &self,
        reads: &mut BTreeMap<Key, ReadEntry>,
        writes: &mut BTreeMap<Key, Mutation>,
    ) {
        reads.retain(|key, _| !self.is_evicted(key));
        writes.retain(|key, _| !self.is_evicted(key));
    }

    /// Whether the commit changes a document, given the states under the locks.
    fn changes_anything(&self, writes: &BTreeMap<Key, Mutation>) -> bool {
        let locks = self.locks.lock();
        let exists = |key| locks.held.get(key).is_none_or(|held| !held.before.absent);
        let heads = self.heads_among(writes);
        writes.iter().filter(|(key, _)| !heads.contains(*key)).any(|(key, mutation)| {
            !matches!(operation(mutation.change(), exists(key)), Ok(Op::Read))
        })
    }

    fn broken(&self, invariant: Invariant) -> AttemptError {
        Error::broken(invariant).in_transaction(self.tid).into()
    }

    /// Returns dry runs of the new contents.
    ///
    /// The dry runs precede the commit, because a refused apply could not be undone.
    fn dry_runs(&self, writes: &BTreeMap<Key, Mutation>) -> Result<Vec<Write>, Error> {
        let stored = |image: &Image| Stored {
            commit_version: Some(CommitVersion::STAND_IN),
            recent: [CommitVersion::STAND_IN].into(),
            image: image.clone(),
            ..Stored::default()
        };
        let check = |(key, mutation): (&Key, &Mutation)| {
            let source = stored(mutation.image()?).encode();
            Some(Write::new(key.clone(), WriteOp::Check(source)))
        };
        Ok(writes.iter().filter_map(check).collect())
    }

    /// Checks the size of the record before the first lock.
    ///
    /// The record is one document of the store.
    fn check_record_size(
        &self,
        wanted: &BTreeMap<Key, Option<ReadEntry>>,
        writes: &BTreeMap<Key, Mutation>,
    ) -> Result<(), Error> {
        let longest = Version::MAX;
        let held = self.locks.lock().held.keys().cloned().collect::<Vec<_>>();
        let keys: std::collections::BTreeSet<&Key> =
            wanted.keys().chain(writes.keys()).chain(&held).collect();
        let participant = |key: &Key| Participant {
            placeholder: Some(longest),
            ..participant_of(key, Op::Insert, Some(longest), Some(CommitVersion::STAND_IN))
        };
        let record = Record {
            commit_version: Some(CommitVersion::STAND_IN),
            participants: keys.iter().map(|key| participant(key)).collect(),
            images: keys
                .iter()
                .map(|key| writes.get(*key).and_then(|mutation| mutation.image().cloned()))
                .collect(),
            metadata: self.options.metadata.clone(),
            ..self.engine.table.new_record(self.tid, State::Committed)
        };
        let key = self.engine.table.record_key(self.tid);
        let heads = self.heads_among(writes).len() * HEAD_BYTES;
        let limits = self.engine.store.limits();
        if record.most_bytes().is_some_and(|most| limits.check(&key, most + heads).is_ok()) {
            return Ok(());
        }
        let source = record.encode().map_err(|e| Error::invalid(e.to_string()))?;
        limits.check(&key, source.len() + heads).map_err(|refusal| too_large(&refusal))
    }

    /// Checks the partition of the record's day before the first lock.
    async fn check_day(&self) -> Result<(), AttemptError> {
        let day = self.tid.day();
        match self.engine.table.ensure_partition(day, &self.deadline).await? {
            // The commit creates the partition, or reports the problem.
            Partition::Ready | Partition::Unmade => Ok(()),
            Partition::Gone => {
                let message = format!(
                    "the records of {day} are dropped already, and that is today by this process's clock: set it right"
                );
                Err(Error::new(ErrorKind::Misconfigured, message).into())
            }
        }
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

    /// The commit point: one conditional write of the record.
    ///
    /// Returns the version of the record, and the same version again unless another process may
    /// have seen the commit earlier.
    #[tracing::instrument(name = "commit", level = "debug", skip_all, fields(tid = %self.tid, attempt = self.tid.attempt()))]
    async fn commit_record(
        &self,
        record: &Record,
    ) -> Result<(Version, Option<Version>), AttemptError> {
        let engine = &self.engine;
        self.check_time()?;
        // From here on only the record says whether the attempt is aborted.
        let deadline = Deadline::until(self.ends_at);
        let source = record.encode().map_err(|e| Error::invalid(e.to_string()))?;
        self.heart.cancel();
        let mut slot = self.slot.lock().await;
        let before = *slot;
        let presumed = slot.seal().ok_or(Invariant::RecordFromSlot);
        let presumed = presumed.map_err(|broken| self.broken(broken))?;
        if !self.progress.send(CommitKind::Record) {
            *slot = before;
            return Err(self.over());
        }
        let (place, commit) = (
            RecordOf { table: &engine.table, tid: self.tid },
            Commit { rules: &engine.context.rules },
        );
        let (presumed, content) = (RecordLookup::known(presumed), |_: &_| Ok(source.clone()));
        match engine.store.settle(&place, &commit, presumed, content, &deadline).await {
            Ok(settled @ Settled { proven: Decision::Committed, .. }) => {
                let version = settled_version(&settled)?;
                Ok((version, (!settled.found.is_committed()).then_some(version)))
            }
            Ok(Settled { proven: Decision::Aborted, written, .. }) => {
                cov_mark::hit!(wound_seen_at_commit);
                if written.is_some() {
                    engine.verdicts.note_aborted(self.tid);
                }
                Err(AttemptError::Retry(RetryReason::Wounded))
            }
            Err(unsettled) => {
                let in_doubt = unsettled.in_doubt;
                let error = match &unsettled.because {
                    Because::Refused(outcome) => refused_record(outcome, &place.key()).into(),
                    _ => unsettled.while_doing("commit"),
                };
                if in_doubt {
                    return Err(self.in_doubt(error));
                }
                cov_mark::hit!(commit_refused_for_certain);
                // Nothing was written: the release decides a record that a heartbeat left.
                *slot = before;
                Err(error)
            }
        }
    }

    pub(in crate::attempt) fn in_doubt(&self, error: AttemptError) -> AttemptError {
        let why = error.into_error();
        let message = format!(
            "the commit was sent and not acknowledged; ask for its outcome by its tid before running it again: {why}"
        );
        AttemptError::Fail(Error::new(ErrorKind::Unknown, message).in_transaction(self.tid))
    }
}

/// The error of a record that the store refuses for good.
///
/// The record is as large as all documents together, so that no single document is at fault.
fn refused_record(outcome: &Outcome, key: &Key) -> Error {
    match outcome {
        Outcome::Invalid(refusal) if refusal.kind == RefusalKind::TooLarge => too_large(refusal),
        outcome => Error::from_refused(outcome, key, "commit"),
    }
}

fn too_large(refusal: &Refusal) -> Error {
    Error::invalid(format!(
        "the transaction is too large, for its record is one document: {}",
        refusal.reason
    ))
}

/// The attempt of a commit task that has not ended.
///
/// If the task is dropped with its runtime, the guard releases the locks, or leaves them to other
/// transactions.
struct Unended(Option<Arc<Attempt>>);

impl Drop for Unended {
    fn drop(&mut self) {
        let Some(attempt) = self.0.take() else { return };
        if !attempt.progress.close() {
            return attempt.leave_to_others();
        }
        let engine = attempt.engine.clone();
        let release = async move { attempt.release("its runtime has ended", false).await };
        engine.context.lifecycle.spawn_from_anywhere(release);
    }
}

/// The only document of a transaction that commits without a record.
pub(in crate::attempt) struct Single {
    pub(in crate::attempt) key: Key,
    pub(in crate::attempt) entry: ReadEntry,
    pub(in crate::attempt) image: Image,
}

/// The result of the steps up to the commit point.
pub(in crate::attempt) enum CommitOutcome {
    /// The transaction wrote nothing.
    Nothing,
    /// A single conditional write will commit the transaction.
    Single(Box<Single>),
    /// The record is committed.
    CommittedRecord(Box<CommittedRecord>),
}
