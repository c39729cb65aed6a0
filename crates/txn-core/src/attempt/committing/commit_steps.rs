//! The steps of a commit: locks, validation, and the deciding write.

use std::collections::BTreeMap;
use std::mem::take;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::attempt::committing::commit_outcome::{CommitOutcome, CommittedRecord};
use crate::attempt::committing::participants::{Participants, heads_among, keep, participants};
use crate::attempt::committing::record::{
    broken, check_day, check_record_size, commit_record, deciding_record,
};
use crate::attempt::committing::single::single_document;
use crate::attempt::locking::lock::acquire;
use crate::attempt::locking::validate::{take_reads_to_lock, validate, validate_all};
use crate::attempt::locking::verify::verify_locks;
use crate::attempt::locking::waiting::wait_for_turn;
use crate::attempt::merging::members::Members;
use crate::attempt::{Attempt, Mutation, ReadEntry};
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::error::{Error, ErrorKind};
use crate::event::Event;
use txn_protocol::document::{Image, Stored};
use txn_protocol::ids::CommitVersion;
use txn_protocol::machines::attempt::{Footprint, Phase, operation};
use txn_protocol::machines::invariant::check_order;
use txn_protocol::record::{Op, Participant};
use txn_protocol::rule::Rule;
use txn_store::{Key, Write, WriteOp};

/// Runs all steps up to and including the commit point.
///
/// For a commit of one document without a record the caller writes the document, and that write is
/// the commit point.
pub(super) async fn commit_inner(attempt: &Arc<Attempt>) -> Result<CommitOutcome, AttemptError> {
    let _one_at_a_time = attempt.locking.lock().await;
    match lock_and_commit(attempt).await {
        // The refused content may rest on reads of different states. The state under one lock
        // may be newer than the loss of another lock.
        Err(AttemptError::Fail(error))
            if matches!(error.kind(), ErrorKind::Exists | ErrorKind::Invalid) =>
        {
            validate_all(attempt).await?;
            Err(error.into())
        }
        result => result,
    }
}

async fn lock_and_commit(attempt: &Arc<Attempt>) -> Result<CommitOutcome, AttemptError> {
    attempt.check_time()?;
    let (reads, writes) = {
        let working = attempt.working.lock();
        (working.reads.clone(), working.writes.clone())
    };
    if !writes.is_empty() {
        attempt.engine.time.confirm_clock().await?;
    }
    let written: Vec<Key> = writes.keys().cloned().collect();
    let _wanted = wait_for_turn(attempt, &written, &CancellationToken::new()).await?;
    if !attempt.hot.members.is_recorded()
        && let Some(single) = single_document(attempt, &reads, &writes).await?
    {
        return Ok(CommitOutcome::Single(Box::new(single)));
    }
    let mut plan = Plan::new(attempt, reads, writes);
    check_record_size(attempt, &plan.wanted, &plan.writes)?;
    check_day(attempt).await?;
    if !lock_and_validate(attempt, &mut plan).await? {
        return Ok(CommitOutcome::Nothing);
    }
    // The lock of an abandoned read may exist, or land later, and the record would not name
    // this lock.
    if let Some(key) = attempt.locks.lock().uncertain.first() {
        cov_mark::hit!(commit_beside_an_uncertain_lock);
        return Err(AttemptError::Retry(RetryReason::Changed(key.clone())));
    }
    let participants = final_participants(attempt, &mut plan)?;
    let Participants { list: participants, images, known, past } = participants;
    keep(attempt, past).await?;
    let (record, commit) = deciding_record(attempt, participants, images).await?;
    let (version, may_be_seen) = commit_record(attempt, &record).await?;
    let record = Arc::new(record);
    Ok(on_committed(attempt, CommittedRecord { record, version, may_be_seen, known }, commit))
}

/// The open work of a commit.
struct Plan {
    /// The documents to lock, as the closure read them.
    wanted: BTreeMap<Key, Option<ReadEntry>>,
    /// The reads to validate.
    only_read: BTreeMap<Key, ReadEntry>,
    writes: BTreeMap<Key, Mutation>,
    /// The dry runs of the new contents.
    checks: Vec<Write>,
}

impl Plan {
    fn new(
        attempt: &Attempt,
        reads: BTreeMap<Key, ReadEntry>,
        writes: BTreeMap<Key, Mutation>,
    ) -> Self {
        let held = attempt.locks.lock().held.clone();
        let mut wanted: BTreeMap<Key, Option<ReadEntry>> = writes
            .keys()
            .filter(|key| !held.contains_key(*key))
            .map(|key| (key.clone(), reads.get(key).cloned()))
            .collect();
        let mut only_read: BTreeMap<Key, ReadEntry> = reads
            .into_iter()
            .filter(|(key, _)| !held.contains_key(key) && !writes.contains_key(key))
            .collect();
        wanted.append(&mut take_reads_to_lock(attempt, &mut only_read, !writes.is_empty()));
        let checks = dry_runs(&writes);
        Self { wanted, only_read, writes, checks }
    }

    /// Forgets the documents that only evicted members use.
    fn drop_evicted(&mut self, members: &Members) {
        self.only_read.retain(|key, _| !members.is_evicted(key));
        self.writes.retain(|key, _| !members.is_evicted(key));
    }
}

/// Locks and validates, in the order of the phases. Returns whether a commit follows.
async fn lock_and_validate(attempt: &Arc<Attempt>, plan: &mut Plan) -> Result<bool, AttemptError> {
    let rules = &attempt.engine.context.rules;
    let members = &attempt.hot.members;
    let mut phase = Phase::Reading;
    loop {
        let before = phase;
        phase = phase.next(
            rules,
            Footprint {
                to_lock: !plan.wanted.is_empty() || !plan.checks.is_empty(),
                to_validate: !plan.only_read.is_empty(),
                commits: members.is_recorded() || changes_anything(attempt, &plan.writes),
            },
        );
        let first = !rules.decides(Rule::ValidateAfterLocks);
        check_order(before, phase, first).map_err(|invariant| broken(attempt, invariant))?;
        match phase {
            Phase::Locking => {
                let (wanted, checks) = (take(&mut plan.wanted), take(&mut plan.checks));
                acquire(attempt, wanted, checks, &CancellationToken::new()).await?;
                plan.drop_evicted(members);
            }
            Phase::Validating => {
                validate_all_that_is_left(attempt, take(&mut plan.only_read)).await?;
                plan.drop_evicted(members);
            }
            Phase::Verifying => {
                // Nothing to commit: the proof that all locks were held at once is enough.
                verify_locks(attempt).await?;
                return Ok(false);
            }
            Phase::Reading | Phase::Committing => return Ok(true),
        }
    }
}

/// Builds the participants of the members that remain, and closes the membership.
fn final_participants(attempt: &Attempt, plan: &mut Plan) -> Result<Participants, AttemptError> {
    let members = &attempt.hot.members;
    let found = loop {
        match participants(attempt, &plan.writes) {
            Err(error) if error.document().is_some_and(|key| evict_for(attempt, &error, key)) => {
                plan.drop_evicted(members);
            }
            found => break found?,
        }
    };
    // No member can leave after this point.
    members.close();
    let before = plan.writes.len();
    plan.drop_evicted(members);
    match plan.writes.len() < before {
        true => Ok(participants(attempt, &plan.writes)?),
        false => Ok(found),
    }
}

/// Announces the commit after its acknowledgement.
fn on_committed(
    attempt: &Attempt,
    committed: CommittedRecord,
    commit_version: CommitVersion,
) -> CommitOutcome {
    let (tid, participants) = (attempt.tid, &committed.record.participants);
    let written = participants.iter().filter(|it| it.op != Op::Read).count();
    attempt.progress.committed(attempt.receipt(Some(tid), Some(commit_version)));
    attempt
        .engine
        .hot
        .board
        .committed(participants.iter().map(Participant::key), attempt.engine.context.now());
    if let Some(under_way) = &mut *attempt.hot.under_way.lock() {
        under_way.recorded();
    }
    attempt.engine.context.emit(&Event::Committed {
        tid,
        label: attempt.options.label.clone(),
        commit_version,
        written,
    });
    CommitOutcome::CommittedRecord(Box::new(committed))
}

/// Validates the remaining reads.
///
/// Members that read a changed document are evicted, if other members remain.
async fn validate_all_that_is_left(
    attempt: &Arc<Attempt>,
    mut reads: BTreeMap<Key, ReadEntry>,
) -> Result<(), AttemptError> {
    loop {
        match validate(attempt, reads.clone()).await {
            Err(AttemptError::Retry(reason))
                if reason.document().is_some_and(|key| attempt.evict(key, &reason)) =>
            {
                reads.retain(|key, _| !attempt.hot.members.is_evicted(key));
            }
            result => return result,
        }
    }
}

/// Evicts the members that insert an existing document, if other members remain.
///
/// A run without a group then shows which member is refused.
fn evict_for(attempt: &Attempt, error: &Error, key: &Key) -> bool {
    error.kind() == ErrorKind::Exists && attempt.evict(key, &RetryReason::LeftGroup)
}

/// Whether the commit changes a document, given the states under the locks.
fn changes_anything(attempt: &Attempt, writes: &BTreeMap<Key, Mutation>) -> bool {
    let locks = attempt.locks.lock();
    let exists = |key| locks.held.get(key).is_none_or(|held| !held.before.absent);
    let heads = heads_among(attempt, writes);
    writes
        .iter()
        .filter(|(key, _)| !heads.contains(*key))
        .any(|(key, mutation)| !matches!(operation(mutation.change(), exists(key)), Ok(Op::Read)))
}

/// Returns dry runs of the new contents.
///
/// The dry runs precede the commit, because a refused apply could not be undone.
fn dry_runs(writes: &BTreeMap<Key, Mutation>) -> Vec<Write> {
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
    writes.iter().filter_map(check).collect()
}
