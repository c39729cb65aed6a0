//! Commits one document by one conditional write, without lock and record.
//!
//! A document keeps its last commit versions, which settle a write without an answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::attempt::committing::commit::Single;
use crate::attempt::state::CommitKind;
use crate::attempt::{Attempt, Mutation, ReadEntry};
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::store::store_access::ReadPreference;
use crate::event::Event;
use crate::store::Key;
use txn_protocol::ids::CommitVersion;
use txn_protocol::machines::settle::SingleOutcome;
use txn_protocol::rule::Rule;

impl Attempt {
    /// Returns the document if the transaction can commit without a record.
    ///
    /// The transaction must consist of one existing document that a transaction committed before.
    /// A document without `transaction_version` has no list of commits that could settle a write
    /// without an answer. A deletion leaves no list. An attempt that locks at each read holds a
    /// lock already. A caller that knows the tid may ask for the outcome, which only a record can
    /// answer.
    pub(in crate::attempt) async fn single_document(
        self: &Arc<Self>,
        reads: &BTreeMap<Key, ReadEntry>,
        writes: &BTreeMap<Key, Mutation>,
    ) -> Result<Option<Single>, AttemptError> {
        let Some((key, Mutation::Put(image))) = writes.first_key_value() else { return Ok(None) };
        let alone = writes.len() == 1 && reads.keys().all(|read| read == key);
        let wants_record =
            self.options.metadata.is_some() || self.is_tid_exposed.load(Ordering::Acquire);
        if !alone || self.pessimistic || wants_record {
            return Ok(None);
        }
        let entry = match reads.get(key) {
            Some(entry) => entry.clone(),
            None => {
                let keys = [key.clone()];
                let views = self
                    .engine
                    .store
                    .read_documents(&keys, ReadPreference::AnyCopy, &self.deadline)
                    .await?;
                let entries = self
                    .engine
                    .reads
                    .observe(&keys, views, ReadPreference::AnyCopy, &self.deadline)
                    .await?;
                let Some(entry) = entries.into_iter().next() else { return Ok(None) };
                self.working.lock().note_read(key.clone(), entry.clone());
                entry
            }
        };
        let observed = &entry.observed;
        let locked =
            observed.holder.is_some() && self.engine.context.rules.decides(Rule::SingleSeesLocks);
        if locked || observed.commit_version.is_none() || observed.image.is_none() {
            return Ok(None);
        }
        let (key, image) = (key.clone(), image.clone());
        Ok(Some(Single { key, entry, image }))
    }

    #[tracing::instrument(name = "commit_single", level = "debug", skip_all, fields(tid = %self.tid, attempt = self.tid.attempt()))]
    pub(in crate::attempt) async fn commit_single(
        &self,
        Single { key, entry, image }: &Single,
    ) -> Result<CommitVersion, AttemptError> {
        let commit = self.commit_version().await?;
        if !self.progress.send(CommitKind::Single) {
            return Err(self.over());
        }
        let outcome =
            self.engine.singles.write_single(key, entry, image, commit, &self.deadline).await?;
        match outcome {
            SingleOutcome::Committed => {
                self.engine.hot.board.committed([key], self.engine.context.now());
                let receipt = self.receipt(None, Some(commit));
                self.progress.committed(receipt);
                let tid = self.tid;
                self.engine.context.emit(&Event::Committed {
                    tid,
                    commit_version: commit,
                    written: 1,
                });
                Ok(commit)
            }
            SingleOutcome::Overtaken => {
                Err(AttemptError::Retry(RetryReason::Overtaken(key.clone())))
            }
        }
    }
}
