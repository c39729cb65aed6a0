//! Participants of which the document does not tell whether they were applied: a plain client
//! rewrote or removed the placeholder, or another transaction deleted the document since.
//!
//! A committed deletion of the document is on record before the document goes. It shows that the
//! participant was applied. Without such a record the owner can tell that the participant was not
//! applied, as long as no other process has begun to apply the transaction: every other process
//! touches the record first, so an acknowledged touch at the version of the commit shows that none
//! has. Then the owner writes over what stands there. (If its own write was carried out and a plain
//! client deleted the document at once, that deletion is undone.) For every other process the
//! participant is damaged, and the record stays open.

use std::collections::BTreeMap;

use crate::engine::Engine;
use crate::engine::apply::Apply;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::pages::PAGE;
use crate::engine::store_access::ReadPreference;
use crate::engine::wait_reason::WaitReason;
use crate::error::{Error, ErrorKind};
use crate::fields::DELETES;
use crate::store::{Filter, Key, Outcome, Write, WriteOp};
use txn_protocol::document::Stored;
use txn_protocol::ids::{AttemptId, CommitVersion};
use txn_protocol::record::{Op, Record, State};
use txn_protocol::rule::Rule;
use txn_protocol::rules::apply::Applying;
use txn_protocol::rules::conflict::HolderState;

/// What is said of a participant that nobody can settle.
const UNTOLD: &str = "another client moved or removed its lock, and nobody can tell whether this was applied: its record has what was to stand there";

impl Engine {
    /// Settles participants whose step is [`Applying::Unclear`] or [`Applying::PerhapsOvertaken`],
    /// as far as this process can.
    pub(super) async fn settle_unclear(
        &self,
        apply: &mut Apply,
        unclear: BTreeMap<Key, Applying>,
        deadline: &Deadline,
    ) {
        if unclear.is_empty() {
            return;
        }
        let decides = self.rules.decides(Rule::RelockUnapplied);
        let is_owner = match &apply.own {
            Some(own) => !decides || own.is_untouched(self, deadline).await,
            None => false,
        };
        if !is_owner {
            apply.own = None;
        }
        for (key, step) in unclear {
            if is_owner && !decides {
                self.relock(apply, key, step).await;
                continue;
            }
            if let Err(error) = self.judge_unclear(apply, &key, step, deadline).await {
                let why = error.into_error().to_string();
                apply.block(&key, WaitReason::Store(why));
            }
        }
    }

    /// Takes the place of a participant's lock again: the next round writes its content there.
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
                if let Outcome::Applied(version) = self.write_one(create).await {
                    if apply.op(&key) == Some(Op::Write) {
                        self.emit_overwritten(apply.tid(), &key);
                    }
                    apply.relocked.insert(key, version);
                }
            }
            _ => {
                apply.never_applied.insert(key);
            }
        }
    }

    /// What can be said of a participant by what is on record.
    async fn judge_unclear(
        &self,
        apply: &mut Apply,
        key: &Key,
        step: Applying,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        let (tid, commit) = (apply.tid(), apply.commit);
        apply.block(key, WaitReason::Unclear(key.clone()));
        let is_owner = apply.own.is_some();
        if !is_owner && self.is_finished(tid, deadline).await? {
            apply.is_finished = true;
        } else if self.is_deleted_since(key, commit, deadline).await? {
            cov_mark::hit!(deletion_on_record);
            apply.deleted.insert(key.clone());
        } else if is_owner {
            self.relock(apply, key.clone(), step).await;
        } else if self.now() >= apply.began + self.config.lease / 2 {
            // Until then the owner may be at it.
            cov_mark::hit!(unclear_participant_reported);
            apply.never(key, UNTOLD);
        }
        Ok(())
    }

    /// Whether a transaction is finished by now: every participant was applied.
    async fn is_finished(&self, tid: AttemptId, deadline: &Deadline) -> Result<bool, AttemptError> {
        let found = self.record_of(tid, ReadPreference::Primary, deadline).await?;
        if found.state() != HolderState::Record(State::Finished) {
            return Ok(false);
        }
        let (Some(record), Some(version)) = (found.record.as_ref(), found.version()) else {
            return Ok(false);
        };
        let Ok(source) = record.encode() else { return Ok(false) };
        let touch = WriteOp::Replace(source, version);
        match self.write_record(tid, &touch, deadline).await? {
            Outcome::Applied(_) => Ok(true),
            // What was only seen may vanish: the next round looks again.
            _ => {
                Err(Error::new(ErrorKind::Unavailable, "its finished record was not touched")
                    .into())
            }
        }
    }

    /// Whether a committed transaction is on record that deleted the document behind this commit. A
    /// deletion has a record always, and it is acknowledged before the document goes.
    async fn is_deleted_since(
        &self,
        key: &Key,
        commit: CommitVersion,
        deadline: &Deadline,
    ) -> Result<bool, AttemptError> {
        let (document, ..) = self.domain_document(deadline).await?;
        let filter = Filter::Equals(DELETES, key.to_string().into());
        // Of all days: the clocks of others may have been behind.
        for partition in document.partitions.values() {
            self.refresh(partition, deadline).await?;
            let mut pages = self.pages(partition, filter.clone(), PAGE);
            while let Some(documents) = self.next_page(&mut pages, deadline).await? {
                for (at, _, source) in documents {
                    let record = crate::engine::format::read_record(&at, &source)?;
                    let deletes = |record: &Record| {
                        let index = record.by_key().get(key).copied();
                        index.is_some_and(|index| record.participants[index].op == Op::Delete)
                    };
                    let is_later = record.commit_version > Some(commit);
                    if record.state.is_committed() && is_later && deletes(&record) {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }
}
