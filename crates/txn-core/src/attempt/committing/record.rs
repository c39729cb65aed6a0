//! The committing record: its size, its content, and the commit point.

use std::collections::{BTreeMap, BTreeSet};

use crate::attempt::committing::participants::{HEAD_BYTES, heads_among, participant_of};
use crate::attempt::state::CommitKind;
use crate::attempt::{Attempt, Mutation, ReadEntry};
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::deadline::Deadline;
use crate::engine::store::settle::{SettleTarget, Settled, UnsettledCause};
use crate::engine::table::partitions::Partition;
use crate::engine::table::record_lookup::RecordLookup;
use crate::engine::table::records::{RecordOf, settled_version};
use crate::error::{Error, ErrorKind};
use txn_protocol::document::Image;
use txn_protocol::ids::CommitVersion;
use txn_protocol::machines::invariant::{Invariant, check_commit_version};
use txn_protocol::machines::record::{Commit, Decision};
use txn_protocol::record::{Op, Participant, Record, State};
use txn_store::{Key, Outcome, Refusal, RefusalKind, Version};

/// Checks the size of the record before the first lock.
///
/// The record is one document of the store.
pub(super) fn check_record_size(
    attempt: &Attempt,
    wanted: &BTreeMap<Key, Option<ReadEntry>>,
    writes: &BTreeMap<Key, Mutation>,
) -> Result<(), Error> {
    let longest = Version::MAX;
    let held = attempt.locks.lock().held.keys().cloned().collect::<Vec<_>>();
    let keys: BTreeSet<&Key> = wanted.keys().chain(writes.keys()).chain(&held).collect();
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
        label: attempt.options.label.clone(),
        metadata: attempt.options.metadata.clone(),
        ..attempt.engine.table.new_record(attempt.tid, State::Committed)
    };
    let key = attempt.engine.table.record_key(attempt.tid);
    let heads = heads_among(attempt, writes).len() * HEAD_BYTES;
    let limits = attempt.engine.store.limits();
    if record.most_bytes().is_some_and(|most| limits.check(&key, most + heads).is_ok()) {
        return Ok(());
    }
    let source = record.encode().map_err(|e| Error::invalid(e.to_string()))?;
    limits.check(&key, source.len() + heads).map_err(|refusal| too_large(&refusal))
}

/// Checks the partition of the record's day before the first lock.
pub(super) async fn check_day(attempt: &Attempt) -> Result<(), AttemptError> {
    let day = attempt.tid.day();
    match attempt.engine.table.ensure_partition(day, &attempt.deadline).await? {
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

/// Builds the committing record, and the version of its writes.
pub(super) async fn deciding_record(
    attempt: &Attempt,
    participants: Vec<Participant>,
    images: Vec<Option<Image>>,
) -> Result<(Record, CommitVersion), AttemptError> {
    let commit = attempt.commit_version().await?;
    *attempt.doubt.lock() = Some(attempt.engine.recent.begin(commit));
    let overwritten = participants.iter().map(|participant| participant.before);
    check_commit_version(commit, overwritten).map_err(|invariant| broken(attempt, invariant))?;
    let record = Record {
        commit_version: Some(commit),
        participants,
        images,
        label: attempt.options.label.clone(),
        metadata: attempt.options.metadata.clone(),
        ..attempt.engine.table.new_record(attempt.tid, State::Committed)
    };
    Ok((record, commit))
}

/// The commit point: one conditional write of the record.
///
/// Returns the version of the record, and whether another process may have seen the commit earlier.
#[tracing::instrument(
    name = "commit",
    parent = &attempt.span,
    level = "debug",
    skip_all,
    fields(tid = %attempt.tid, attempt = attempt.tid.attempt())
)]
pub(super) async fn commit_record(
    attempt: &Attempt,
    record: &Record,
) -> Result<(Version, bool), AttemptError> {
    let engine = &attempt.engine;
    attempt.check_time()?;
    // From here on only the record says whether the attempt is aborted.
    let deadline = Deadline::until(attempt.ends_at);
    let source = record.encode().map_err(|e| Error::invalid(e.to_string()))?;
    attempt.heart.cancel();
    let mut writer = attempt.record_writer.lock().await;
    let before = *writer;
    let presumed = writer.seal().ok_or(Invariant::RecordFromWriter);
    let presumed = presumed.map_err(|invariant| broken(attempt, invariant))?;
    if !attempt.progress.send(CommitKind::Record) {
        *writer = before;
        return Err(attempt.over());
    }
    let (target, commit) = (
        RecordOf { table: &engine.table, tid: attempt.tid },
        Commit { rules: &engine.context.rules },
    );
    let (presumed, content) = (RecordLookup::known(presumed), |_: &_| Ok(source.clone()));
    match engine.store.settle(&target, &commit, presumed, content, &deadline).await {
        Ok(settled @ Settled { proven: Decision::Committed, .. }) => {
            Ok((settled_version(&settled)?, settled.found.is_committed()))
        }
        Ok(Settled { proven: Decision::Aborted, written, .. }) => {
            cov_mark::hit!(wound_seen_at_commit);
            if written.is_some() {
                engine.verdicts.note_aborted(attempt.tid);
            }
            Err(AttemptError::Retry(RetryReason::Wounded))
        }
        Err(unsettled) => {
            let in_doubt = unsettled.in_doubt;
            let error = match &unsettled.because {
                UnsettledCause::Refused(outcome) => refused_record(outcome, &target.key()).into(),
                _ => unsettled.while_doing("commit"),
            };
            if in_doubt {
                return Err(attempt.in_doubt(error));
            }
            cov_mark::hit!(commit_refused_for_certain);
            // Nothing was written: the release decides a record that a heartbeat left.
            *writer = before;
            Err(error)
        }
    }
}
pub(super) fn broken(attempt: &Attempt, invariant: Invariant) -> AttemptError {
    Error::broken(invariant).in_transaction(attempt.tid).into()
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
