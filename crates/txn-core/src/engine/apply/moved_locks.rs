//! Participants whose document does not tell whether the apply happened.
//!
//! A plain client rewrote or removed the placeholder, or another transaction deleted the document
//! later.
//!
//! A committed deletion has a record before the document disappears. Such a record shows that the
//! participant was applied. Without a record, the owner can tell that the participant was not
//! applied, if no other process has begun to apply the transaction. Every other process touches the
//! record first. So an acknowledged touch at the version of the commit shows that no other process
//! has begun. Then the owner writes over the present document. If the owner's own write was carried
//! out and a plain client deleted the document at once, that deletion is undone.
//!
//! For every other process the participant is damaged, and the record stays open.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};

use crate::engine::apply::Applier;
use crate::engine::apply::progress::Apply;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::store::pages::PAGE;
use crate::engine::store::store_access::ReadPreference;
use crate::engine::wait_reason::WaitReason;
use crate::error::{Error, ErrorKind};
use crate::event::DamageCause;
use txn_protocol::document::Stored;
use txn_protocol::ids::{AttemptId, CommitVersion};
use txn_protocol::record::{Participant, State};
use txn_protocol::rule::Rule;
use txn_protocol::rules::apply::Applying;
use txn_protocol::rules::conflict::HolderState;
use txn_store::fields::DELETES;
use txn_store::{Filter, Key, Outcome, Write, WriteOp};

/// The number of documents in one search.
const KEYS_AT_ONCE: usize = 500;

/// The number of partitions that are searched at a time.
const PARTITIONS_AT_ONCE: usize = 4;

/// The damage of a participant that no process can settle.
const UNTOLD: &str = "another client moved or removed its lock, and no process can tell whether this was applied: its record has the new content";

impl Applier {
    /// Settles unclear participants, as far as this process can.
    ///
    /// The step of such a participant is [`Applying::Unclear`] or [`Applying::PerhapsOvertaken`].
    pub(in crate::engine) async fn settle_unclear(
        &self,
        apply: &mut Apply,
        unclear: BTreeMap<Key, Applying>,
        deadline: &Deadline,
    ) {
        if unclear.is_empty() {
            return;
        }
        let decides = self.context.rules.decides(Rule::RelockUnapplied);
        let is_owner = match &apply.own {
            Some(own) => !decides || own.is_untouched(&self.table, deadline).await,
            None => false,
        };
        if !is_owner {
            apply.own = None;
        }
        if is_owner && !decides {
            for (key, step) in unclear {
                self.relock(apply, key, step).await;
            }
            return;
        }
        for key in unclear.keys() {
            apply.block(key, WaitReason::Unclear(key.clone()));
        }
        if let Err(error) = self.judge_unclear(apply, &unclear, deadline).await {
            let why = error.into_error().to_string();
            for key in unclear.keys() {
                apply.block(key, WaitReason::Store(why.clone()));
            }
        }
    }

    /// Locks a participant again, so that the next round writes its content.
    async fn relock(&self, apply: &mut Apply, key: Key, step: Applying) {
        cov_mark::hit!(unapplied_participant_relocked);
        apply.block(&key, WaitReason::Changing(key.clone()));
        match step {
            Applying::Unclear(Some(version)) => {
                if !apply.is_bare(&key) {
                    self.emit_overwritten(apply.tid(), &key);
                }
                apply.relocked.insert(key, version);
            }
            Applying::Unclear(None) => {
                let placeholder = Stored::placeholder(apply.tid()).encode();
                let create = Write::new(key.clone(), WriteOp::Create(placeholder));
                if let Outcome::Applied(version) = self.store.write_one(create).await {
                    let Some(participant) = apply.recorded(&key) else { return };
                    if participant.is_elsewhere(version.incarnation)
                        && self.context.rules.decides(Rule::SameCollection)
                    {
                        // The collection was made again in between. If the placeholder stays, no
                        // record names it, and the lock is void.
                        self.store.write_one(Write::new(key, WriteOp::Delete(version))).await;
                        return;
                    }
                    // Other transactions may have read the absence meanwhile.
                    self.emit_overwritten(apply.tid(), &key);
                    apply.relocked.insert(key, version);
                }
            }
            _ => {
                apply.never_applied.insert(key);
            }
        }
    }

    /// Settles participants by the records of later transactions.
    async fn judge_unclear(
        &self,
        apply: &mut Apply,
        unclear: &BTreeMap<Key, Applying>,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        let is_owner = apply.own.is_some();
        if !is_owner && self.is_finished(apply.tid(), deadline).await? {
            apply.is_finished = true;
            return Ok(());
        }
        let commits = unclear.keys().map(|key| (key, apply.commit)).collect();
        let mut deleted = self.deleted_since(&commits, deadline).await?;
        for (key, step) in unclear {
            if let Some(key) = deleted.take(key) {
                cov_mark::hit!(deletion_on_record);
                apply.deleted.insert(key);
            } else if is_owner {
                self.relock(apply, key.clone(), *step).await;
            } else if self.context.now() >= apply.began + self.context.config.lease / 2 {
                // Before this time the owner may still be at work.
                cov_mark::hit!(unclear_participant_reported);
                apply.never(key, DamageCause::LockBypassed, UNTOLD);
            }
        }
        Ok(())
    }

    /// Whether a transaction is finished, so that every participant was applied.
    async fn is_finished(&self, tid: AttemptId, deadline: &Deadline) -> Result<bool, AttemptError> {
        let found = self.table.record_of(tid, ReadPreference::Primary, deadline).await?;
        match found.state() {
            // A day is dropped only after all of its transactions are finished.
            HolderState::Gone => return Ok(true),
            HolderState::Record(State::Finished) => {}
            _ => return Ok(false),
        }
        let (Some(record), Some(version)) = (found.record.as_ref(), found.version()) else {
            return Ok(false);
        };
        let Ok(source) = record.encode() else { return Ok(false) };
        let touch = WriteOp::Replace(source, version);
        match self.table.write_record(tid, &touch, deadline).await? {
            Outcome::Applied(_) => Ok(true),
            // A state that was only read may vanish: the next round reads again.
            _ => {
                Err(Error::new(ErrorKind::Unavailable, "its finished record was not touched")
                    .into())
            }
        }
    }

    /// The documents that committed transactions deleted after a commit, by their records.
    ///
    /// `unclear`: the commit of each document. A deletion always has a record, which is
    /// acknowledged before the document disappears.
    pub(crate) async fn deleted_since(
        &self,
        unclear: &BTreeMap<&Key, CommitVersion>,
        deadline: &Deadline,
    ) -> Result<BTreeSet<Key>, AttemptError> {
        let (document, ..) = self.table.domain_document(deadline).await?;
        let names: Vec<Arc<str>> = unclear.keys().map(|key| key.to_string().into()).collect();
        let filters = names.chunks(KEYS_AT_ONCE);
        let filters: Vec<Filter> =
            filters.map(|names| Filter::any_of(DELETES, names.iter().cloned())).collect();
        // All days: the clocks of other processes may have been behind.
        let partitions = document.partitions.values();
        let searches: Vec<_> = partitions
            .map(|partition| self.later_deletions(partition, &filters, unclear, deadline).boxed())
            .collect();
        let found = stream::iter(searches).buffer_unordered(PARTITIONS_AT_ONCE);
        let found: Vec<BTreeSet<Key>> = found.try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// The unclear documents that later committed transactions of one partition deleted.
    ///
    /// The filters select the transactions.
    async fn later_deletions(
        &self,
        partition: &str,
        filters: &[Filter],
        unclear: &BTreeMap<&Key, CommitVersion>,
        deadline: &Deadline,
    ) -> Result<BTreeSet<Key>, AttemptError> {
        self.store.refresh(partition, deadline).await?;
        let mut deleted = BTreeSet::new();
        for filter in filters {
            let mut pages = self.store.pages(partition, filter.clone(), PAGE);
            while let Some(documents) = self.store.next_page(&mut pages, deadline).await? {
                for (at, _, source) in documents {
                    let record = crate::engine::table::format::read_record(&at, &source)?;
                    if record.state.is_committed() {
                        let later = |key: &Key| {
                            unclear
                                .get(key)
                                .is_some_and(|commit| record.commit_version > Some(*commit))
                        };
                        deleted.extend(record.deleted().map(Participant::key).filter(later));
                    }
                }
            }
        }
        Ok(deleted)
    }
}
