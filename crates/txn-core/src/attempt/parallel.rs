//! Parallel commit: the record goes out as `staged` in the same bulk as the locks and the dry runs. It is committed once all of
//! them are answered as they must be; the record says so afterwards, before anything is applied.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::commit::{CommittedRecord, Prepared, refused_record};
use super::participants::participant_of;
use super::stage::Decisive;
use super::{Attempt, Mutation, ReadEntry};
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::places::RecordOf;
use crate::engine::settle::{Because, Settled, Unsettled};
use crate::engine::transaction_table::RecordLookup;
use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::store::{Key, Outcome, Write, WriteOp};
use txn_protocol::document::View;
use txn_protocol::ids::CommitVersion;
use txn_protocol::machines::attempt::{Change, operation};
use txn_protocol::machines::record::{Commit, DecideOwn, Decision, Standing};
use txn_protocol::record::{Record, State};
use txn_protocol::rule::Rule;
use txn_protocol::rules::conflict::HolderState;
use txn_protocol::rules::staged::{Answer, Owning, may_stage, owning};

/// What came back for the bulk.
struct Answers {
    /// Of the record, every lock and every dry run.
    each: Vec<Answer>,
    /// Where the record stands, as far as the answer tells; none if it certainly does not, and never will.
    record: Option<Standing>,
    /// Why it is not committed, if it is not: what matters most to the caller.
    why: Option<AttemptError>,
}

impl Answers {
    /// What is refused for good is said, whatever else failed; and what others changed rather than what nobody answered.
    fn failed(&mut self, why: AttemptError) {
        let weight = |why: &AttemptError| match why {
            AttemptError::Fail(_) => 2,
            AttemptError::Retry(RetryReason::Unacknowledged(_)) => 0,
            AttemptError::Retry(_) => 1,
        };
        self.each.push(Answer::Failed);
        if self.why.as_ref().is_none_or(|before| weight(before) < weight(&why)) {
            self.why = Some(why);
        }
    }
}

impl Attempt {
    /// Whether the attempt may commit in parallel: it is the first of one transaction, which updates and deletes documents that it
    /// read at rest, and does nothing else. `only_read`: whether it read others, which have to be validated.
    pub(super) fn commits_in_parallel(
        &self,
        wanted: &BTreeMap<Key, Option<ReadEntry>>,
        only_read: bool,
        writes: &BTreeMap<Key, Mutation>,
    ) -> bool {
        let is_new = {
            let locks = self.locks.lock();
            locks.held.is_empty() && locks.uncertain.is_empty()
        };
        let rules = &self.engine.rules;
        let changes = writes.iter().map(|(key, mutation)| {
            let read = wanted.get(key).and_then(Option::as_ref);
            (mutation.change(), read.map(|read| &read.observed))
        });
        let as_seen = |entry: &Option<ReadEntry>| {
            entry.as_ref().is_some_and(
                |entry| matches!(&entry.view, View::Present { stored, .. } if !stored.absent),
            )
        };
        self.engine.config.parallel_commit
            && is_new
            // Where it was overtaken, or not answered, it would be again: further ones settle each lock.
            && self.tid.attempt() == 0
            && !self.pessimistic
            && !self.is_recorded()
            && !self.has_components()
            && wanted.keys().all(|key| writes.contains_key(key) && !self.seat.is_over(key))
            && wanted.values().all(as_seen)
            && self.heads_among(writes).is_empty()
            && may_stage(rules, changes, only_read)
    }

    /// Sends the record as staged, with its locks and dry runs, in one bulk.
    #[tracing::instrument(name = "commit_in_parallel", level = "debug", skip_all, fields(tid = %self.tid, attempt = self.tid.attempt()))]
    pub(super) async fn commit_in_parallel(
        self: &Arc<Self>,
        wanted: BTreeMap<Key, Option<ReadEntry>>,
        writes: &BTreeMap<Key, Mutation>,
        checks: Vec<Write>,
    ) -> Result<Prepared, AttemptError> {
        let engine = &self.engine;
        let read: BTreeMap<Key, ReadEntry> =
            wanted.into_iter().filter_map(|(key, entry)| Some((key, entry?))).collect();
        let (record, commit) = self.staged_record(&read, writes).await?;
        let source = record.encode().map_err(|e| Error::invalid(e.to_string()))?;
        let lock = |(key, entry): (&Key, &ReadEntry)| match &entry.view {
            View::Present { version, stored, .. } => {
                let locked = stored.locked_by(Some(self.tid)).encode();
                Some(Write::new(key.clone(), WriteOp::Replace(locked, *version)))
            }
            View::Absent => None,
        };
        let mut bulk = vec![engine.table.record_write(self.tid, WriteOp::Create(source))];
        bulk.extend(checks);
        bulk.extend(read.iter().filter_map(lock));
        self.check_time()?;
        self.seal();
        if !self.slot.lock().await.seal_unwritten() {
            return Err(AttemptError::Retry(RetryReason::Expired(None)));
        }
        if !self.progress.send(Decisive::Record) {
            return Err(self.over());
        }
        // From here on only the record says whether the attempt is aborted.
        self.locks.lock().uncertain.extend(read.keys().cloned());
        engine.emit(&Event::Staged { tid: self.tid });
        let answers = self.take_answers(bulk, read).await;
        match owning(answers.each) {
            Owning::Acknowledge => {
                cov_mark::hit!(committed_in_parallel);
                let standing = answers.record.filter(|standing| standing.version.is_some());
                let standing =
                    standing.ok_or_else(|| Error::damaged("a record without a version"))?;
                Ok(self.committed_in_parallel(record, commit, standing))
            }
            Owning::Await | Owning::DecideRecord => {
                let why = answers.why.unwrap_or_else(|| unacknowledged("no answer"));
                match answers.record {
                    Some(standing) => self.decide_own(record, commit, standing, why).await,
                    None => Err(why),
                }
            }
        }
    }

    /// The record with everything that is to be locked: by the versions that were read; and the version of what it writes.
    async fn staged_record(
        &self,
        read: &BTreeMap<Key, ReadEntry>,
        writes: &BTreeMap<Key, Mutation>,
    ) -> Result<(Record, CommitVersion), AttemptError> {
        let mut participants = Vec::new();
        let mut images = Vec::new();
        for (key, entry) in read {
            let mutation = writes.get(key);
            let change = mutation.map_or(Change::Read, Mutation::change);
            let op = operation(change, true).map_err(|_| Self::exists(key))?;
            let observed = &entry.observed;
            participants.push(participant_of(key, op, observed.version, observed.tid));
            images.push(mutation.and_then(|mutation| mutation.image().cloned()));
        }
        self.deciding_record(State::Staged, participants, images).await
    }

    /// Sends the bulk, the record first, and waits no longer than others do: from a lease on they take its owner for dead.
    async fn outcomes_of(&self, bulk: &[Write]) -> Vec<Outcome> {
        let engine = &self.engine;
        let left = self.ends_at.saturating_sub(engine.now());
        let lease = engine.config.lease_of(self.tid.attempt());
        tokio::select! {
            biased;
            outcomes = engine.write_all(bulk) => outcomes,
            () = engine.config.clock.sleep(lease.min(left)) => {
                cov_mark::hit!(staged_bulk_without_an_answer);
                let unknown = |_: &Write| Outcome::Unknown("no answer within the lease".to_owned());
                bulk.iter().map(unknown).collect()
            }
        }
    }

    async fn take_answers(&self, bulk: Vec<Write>, mut read: BTreeMap<Key, ReadEntry>) -> Answers {
        let engine = &self.engine;
        let outcomes = self.outcomes_of(&bulk).await;
        let mut answers = Answers { each: Vec::new(), record: Some(Standing::MISSING), why: None };
        let mut locked = Vec::new();
        for (index, (write, outcome)) in bulk.into_iter().zip(outcomes).enumerate() {
            let Write { key, op, .. } = write;
            let is_lock = index > 0 && op.changes();
            if outcome.is_certainly_not_applied() {
                match is_lock {
                    true => {
                        self.locks.lock().uncertain.remove(&key);
                    }
                    false if index == 0 => answers.record = None,
                    false => {}
                }
            }
            match outcome {
                Outcome::Applied(version) if index == 0 => {
                    answers.record = Some(Standing::at(State::Staged, version));
                    answers.each.push(Answer::Acknowledged);
                }
                Outcome::Applied(version) => {
                    let entry = read.remove(&key);
                    self.hold(&key, version, op, entry.map(|entry| entry.view), 0);
                    locked.push(key);
                    answers.each.push(Answer::Acknowledged);
                }
                Outcome::Holds => answers.each.push(Answer::Acknowledged),
                Outcome::Rejected(why) | Outcome::RejectedInDoubt(why) | Outcome::Unknown(why) => {
                    if is_lock {
                        engine.memory.forget(&key);
                    }
                    answers.failed(unacknowledged(why));
                }
                // Who decides looks who was faster.
                Outcome::Conflict if index == 0 => {
                    answers.failed(unacknowledged("its record stands already"));
                }
                Outcome::Conflict => {
                    engine.memory.forget(&key);
                    answers.failed(AttemptError::Retry(RetryReason::Changed(key)));
                }
                Outcome::MissingCollection if index == 0 => {
                    answers.failed(unacknowledged("its partition is not known everywhere yet"));
                }
                _ if !is_lock && index > 0 && !engine.rules.decides(Rule::DryRunsFit) => {
                    answers.each.push(Answer::Acknowledged);
                }
                refused => {
                    if is_lock {
                        engine.memory.forget_collection(&key.collection);
                    }
                    let error = match (index, is_lock) {
                        (0, _) => refused_record(&refused, &key),
                        (_, true) => Error::from_refused(&refused, &key, "lock it"),
                        (_, false) => Error::from_refused(&refused, &key, "write it"),
                    };
                    answers.failed(error.in_transaction(self.tid).into());
                }
            }
        }
        if !locked.is_empty() {
            engine.emit(&Event::Locked { tid: self.tid, documents: locked });
        }
        answers
    }

    /// Something failed: its own record is decided before anything is told or tried again. Nothing was acknowledged, and never
    /// will be, unless whoever recovered it was faster.
    async fn decide_own(
        &self,
        record: Record,
        commit: CommitVersion,
        standing: Standing,
        why: AttemptError,
    ) -> Result<Prepared, AttemptError> {
        let engine = &self.engine;
        if !engine.rules.decides(Rule::DecideBeforeTelling) {
            return Err(why);
        }
        // Its caller is told at its own end; whoever meets its locks would have to fence.
        let deadline = engine.deadline(engine.config.deadline);
        let aborted = engine.encode_aborted(self.tid, &why.to_string());
        let aborted = aborted.map_err(|error| self.in_doubt(error.into()))?;
        let (place, machine) = (RecordOf(self.tid), DecideOwn { rules: &engine.rules });
        let (known, content) = (RecordLookup::known(standing), |_: &_| Ok(aborted.clone()));
        match engine.settle(&place, &machine, known, content, &deadline).await {
            Ok(Settled { proven: Decision::Aborted, found, .. }) => {
                cov_mark::hit!(staged_record_aborted_by_its_owner);
                engine.aborted.insert(self.tid);
                match found.record.is_some_and(|record| record.state == State::Aborted) {
                    true => Err(AttemptError::Retry(RetryReason::Wounded)),
                    false => Err(why),
                }
            }
            Ok(settled @ Settled { proven: Decision::Committed, .. }) => {
                cov_mark::hit!(staged_record_committed_by_others);
                let found = settled.found.record.as_ref();
                let state = found.map_or(State::Committed, |record| record.state);
                let standing = Standing::at(state, settled.version()?);
                Ok(self.committed_in_parallel(record, commit, standing))
            }
            Err(unsettled) => Err(self.in_doubt(unsettled.while_doing("commit"))),
        }
    }

    fn committed_in_parallel(
        &self,
        record: Record,
        commit: CommitVersion,
        standing: Standing,
    ) -> Prepared {
        let view = |(key, lock): (&Key, &super::Held)| (key.clone(), lock.view(self.tid));
        let known = self.locks.lock().held.iter().map(view).collect();
        let record = Arc::new(Record { state: State::Committed, ..record });
        self.is_committed(CommittedRecord { record, standing, first: None, known }, commit)
    }

    /// Before anything is applied the record says that it is committed. Returns how it stands then.
    pub(super) async fn mark_committed(
        &self,
        record: &Record,
        standing: Standing,
    ) -> Result<Standing, AttemptError> {
        let engine = &self.engine;
        let deadline = engine.deadline(engine.config.deadline);
        let marked = Record { modified_at: engine.unix_millis(), ..record.clone() };
        let source = marked.encode().map_err(|e| Error::damaged(e.to_string()))?;
        let (place, commit) = (RecordOf(self.tid), Commit { rules: &engine.rules });
        let (presumed, content) = (RecordLookup::known(standing), |_: &_| Ok(source.clone()));
        match engine.settle(&place, &commit, presumed, content, &deadline).await {
            Ok(settled @ Settled { proven: Decision::Committed, .. }) => {
                Ok(Standing::at(State::Committed, settled.version()?))
            }
            // Its day was dropped, which takes that others finished it.
            Err(Unsettled {
                because: Because::Stuck | Because::Refused(Outcome::MissingCollection),
                ..
            }) => Ok(Standing { state: HolderState::Gone, version: None }),
            Err(unsettled) => Err(unsettled.while_doing("mark a commit")),
            Ok(Settled { proven: Decision::Aborted, .. }) => {
                let message = "it is committed, and its record was replaced by one that says aborted: look at each of its \
                               documents";
                let key = engine.table.record_key(self.tid);
                Err(Error::new(ErrorKind::Damaged, message)
                    .at(&key)
                    .in_transaction(self.tid)
                    .into())
            }
        }
    }
}

fn unacknowledged(why: impl Into<String>) -> AttemptError {
    AttemptError::Retry(RetryReason::Unacknowledged(why.into()))
}
