//! Commits one document by one conditional write, without lock and record.
//!
//! A document keeps its last commit versions, which settle a write without an answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::attempt::state::CommitKind;
use crate::attempt::{Attempt, Mutation, ReadEntry};
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::store::store_access::ReadPreference;
use crate::event::Event;
use txn_protocol::document::Image;
use txn_protocol::ids::CommitVersion;
use txn_protocol::machines::settle::SingleOutcome;
use txn_protocol::rule::Rule;
use txn_store::Key;

/// The only document of a transaction that commits without a record.
pub(in crate::attempt) struct Single {
    pub(in crate::attempt) key: Key,
    pub(in crate::attempt) entry: ReadEntry,
    pub(in crate::attempt) image: Image,
}

/// Returns the document if the transaction can commit without a record.
///
/// The transaction must consist of one existing document that a transaction committed before.
/// A document without `transaction_version` has no list of commits that could settle a write
/// without an answer. A deletion leaves no list. An attempt that locks at each read holds a
/// lock already. Options may require a record.
pub(in crate::attempt) async fn single_document(
    attempt: &Arc<Attempt>,
    reads: &BTreeMap<Key, ReadEntry>,
    writes: &BTreeMap<Key, Mutation>,
) -> Result<Option<Single>, AttemptError> {
    let Some((key, Mutation::Put(image))) = writes.first_key_value() else { return Ok(None) };
    let alone = writes.len() == 1 && reads.keys().all(|read| read == key);
    let needs_record = attempt.options.own_record || attempt.options.metadata.is_some();
    if !alone || attempt.pessimistic || needs_record {
        return Ok(None);
    }
    let entry = match reads.get(key) {
        Some(entry) => entry.clone(),
        None => {
            let keys = [key.clone()];
            let views = attempt
                .engine
                .store
                .read_documents(&keys, ReadPreference::AnyCopy, &attempt.deadline)
                .await?;
            let entries = attempt
                .engine
                .reads
                .observe(&keys, views, ReadPreference::AnyCopy, &attempt.deadline)
                .await?;
            let Some(entry) = entries.into_iter().next() else { return Ok(None) };
            attempt.working.lock().note_read(key.clone(), entry.clone());
            entry
        }
    };
    let observed = &entry.observed;
    let locked =
        observed.holder.is_some() && attempt.engine.context.rules.decides(Rule::SingleSeesLocks);
    if locked || observed.commit_version.is_none() || observed.image.is_none() {
        return Ok(None);
    }
    let (key, image) = (key.clone(), image.clone());
    Ok(Some(Single { key, entry, image }))
}

#[tracing::instrument(
    name = "commit",
    parent = &attempt.span,
    level = "debug",
    skip_all,
    fields(tid = %attempt.tid, attempt = attempt.tid.attempt())
)]
pub(in crate::attempt) async fn commit_single(
    attempt: &Attempt,
    Single { key, entry, image }: &Single,
) -> Result<CommitVersion, AttemptError> {
    let commit = attempt.commit_version().await?;
    if !attempt.progress.send(CommitKind::Single) {
        return Err(attempt.over());
    }
    let outcome =
        attempt.engine.singles.write_single(key, entry, image, commit, &attempt.deadline).await?;
    match outcome {
        SingleOutcome::Committed => {
            attempt.engine.hot.board.committed([key], attempt.engine.context.now());
            let receipt = attempt.receipt(None, Some(commit));
            attempt.progress.committed(receipt);
            let tid = attempt.tid;
            attempt.engine.context.emit(&Event::Committed {
                tid,
                label: attempt.options.label.clone(),
                commit_version: commit,
                written: 1,
            });
            Ok(commit)
        }
        SingleOutcome::Overtaken => Err(AttemptError::Retry(RetryReason::Overtaken(key.clone()))),
    }
}
