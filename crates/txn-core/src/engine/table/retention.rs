//! Drops the days of the transaction table after their retention.

use std::collections::BTreeSet;

use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::table::Table;
use crate::engine::table::domain_document::encode;
use crate::engine::wait_reason::WaitReason;
use crate::event::Event;
use txn_protocol::ids::Day;
use txn_protocol::machines::domain::DomainDocument;
use txn_protocol::machines::partition::{Dropping, LIFT_WITHIN, may_drop};
use txn_protocol::record::State;
use txn_protocol::rule::Rule;
use txn_store::{Filter, Key, Outcome, Version, Write, WriteOp};

impl Table {
    /// Drops the partitions of days past their retention, oldest first.
    ///
    /// Adds their number to `dropped`. Stops at a day with an open record.
    pub(crate) async fn drop_old_partitions(
        &self,
        today: Day,
        dropped: &mut usize,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        let last = today.plus(-1 - i64::from(self.context.config.retention_days));
        let (mut document, ..) = self.domain_document(deadline).await?;
        if !document.dropping.is_empty() {
            // A state that was only read may vanish, and the partition would be official again.
            (document, _) = self.change_domain(deadline, |_| false).await?;
        }
        for (day, name) in &document.dropping {
            // The process that moved the watermark did not delete the partition.
            self.remove_partition(*day, name, deadline).await?;
        }
        for (day, name) in document.partitions.iter().filter(|(day, _)| **day <= last) {
            if !self.drop_partition(*day, name, deadline).await? {
                return Ok(());
            }
            *dropped += 1;
        }
        Ok(())
    }

    /// Drops one day whose transactions are all resolved.
    ///
    /// The steps: block writes, scan again completely, move the watermark, delete. Returns whether
    /// the day is dropped.
    pub(crate) async fn drop_partition(
        &self,
        day: Day,
        name: &str,
        deadline: &Deadline,
    ) -> Result<bool, AttemptError> {
        let (mut document, mut version, _) = self.domain_document(deadline).await?;
        if document.partitions.get(&day).is_none_or(|official| official != name) {
            return Ok(false);
        }
        let now = self.context.now();
        let known_for = |mark| now.saturating_sub(self.days.lift_known_since(day, mark, now));
        if !may_drop(&self.context.rules, document.lifted.get(&day).map(|mark| known_for(mark))) {
            // The process that set a block since may be dead.
            self.lift_block_if_set(day, name, version, deadline).await?;
            return Ok(false);
        }
        // An open record is better found before the block than after it.
        if self.has_open_records(name, deadline).await? {
            cov_mark::hit!(day_with_an_open_record_stays);
            return Ok(false);
        }
        let mark = self.new_mark();
        let mut lift_by = deadline.clone();
        let mut step = Dropping::begin(&self.context.rules);
        loop {
            let yes = match step {
                Dropping::Block => {
                    let block = || self.store.documents().block_writes(name, true);
                    self.store.retry_unavailable(deadline, block).await?;
                    true
                }
                Dropping::Look => !self.has_open_records(name, deadline).await?,
                Dropping::MoveWatermark => {
                    if !self.context.rules.decides(Rule::WatermarkBeforeBlock) {
                        (document, version, _) = self.domain_document(deadline).await?;
                    }
                    self.move_watermark(document.clone(), version, day).await?
                }
                Dropping::NoteLift => {
                    lift_by = self.lift_deadline(deadline);
                    let noted = self.note_lift(&BTreeSet::from([day]), &mark, &lift_by).await?;
                    step = Dropping::noted(&noted, day, &mark);
                    continue;
                }
                Dropping::Lift => {
                    self.lift(name, &lift_by).await?;
                    true
                }
                Dropping::Delete => {
                    self.remove_partition(day, name, deadline).await?;
                    self.context.emit(&Event::PartitionDropped { day });
                    true
                }
                Dropping::Dropped => return Ok(true),
                Dropping::Left => return Ok(false),
            };
            step = step.next(&self.context.rules, yes);
        }
    }

    /// Lifts the block of a partition, if there is one.
    ///
    /// The deletion of a missing document detects a block, and changes nothing.
    async fn lift_block_if_set(
        &self,
        day: Day,
        name: &str,
        version: Version,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        let probe = Write::new(Key::new(name, "no-record"), WriteOp::Delete(version));
        let outcome = self.store.write_one(probe).await;
        if matches!(outcome, Outcome::Rejected(_) | Outcome::RejectedInDoubt(_)) {
            self.lift_blocks(&BTreeSet::from([day]), deadline).await?;
        }
        Ok(())
    }

    /// Whether a partition has open records, which keep its day.
    ///
    /// The scan is complete.
    async fn has_open_records(
        &self,
        name: &str,
        deadline: &Deadline,
    ) -> Result<bool, AttemptError> {
        let found = self.store.holds_any(name, open_records(), deadline).await?;
        Ok(found && self.context.rules.decides(Rule::DropOnlyResolved))
    }

    /// Deletes the partition of a gone day, and forgets its name.
    async fn remove_partition(
        &self,
        day: Day,
        name: &str,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        self.store
            .retry_unavailable(deadline, || self.store.documents().drop_collection(name))
            .await?;
        self.change_domain(deadline, |document| document.dropping.remove(&day).is_some()).await?;
        Ok(())
    }

    /// Moves the watermark, at the version that was read before the block.
    ///
    /// Returns whether the write was acknowledged.
    async fn move_watermark(
        &self,
        mut document: DomainDocument,
        version: Version,
        day: Day,
    ) -> Result<bool, AttemptError> {
        document.drop_day(day);
        let replace = WriteOp::Replace(encode(&document)?, version);
        let write = Write::new(self.domain_key(), replace);
        let moved = matches!(self.store.write_one(write).await, Outcome::Applied(_));
        if moved {
            self.days.note_dropped(day);
        }
        Ok(moved)
    }

    /// Lifts the write blocks of these days, except for gone days.
    ///
    /// A janitor that is dropping one of these days finds a changed domain document, and begins
    /// again.
    pub(crate) async fn lift_blocks(
        &self,
        days: &BTreeSet<Day>,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        let deadline = self.lift_deadline(deadline);
        let mark = self.new_mark();
        let document = self.note_lift(days, &mark, &deadline).await?;
        for (day, name) in document.partitions {
            if document.lifted.get(&day) == Some(&mark) {
                self.lift(&name, &deadline).await?;
            }
        }
        Ok(())
    }

    /// A random mark that tells one lift from another.
    fn new_mark(&self) -> String {
        format!("{:016x}", self.context.config.entropy.next_u64())
    }

    /// The deadline of a lift, counted from its note.
    ///
    /// A lift is unconditional, and other processes rely on this bound.
    fn lift_deadline(&self, deadline: &Deadline) -> Deadline {
        deadline.at_most(self.context.now() + LIFT_WITHIN)
    }

    async fn note_lift(
        &self,
        days: &BTreeSet<Day>,
        mark: &str,
        deadline: &Deadline,
    ) -> Result<DomainDocument, AttemptError> {
        let noted = self.change_domain(deadline, |document| document.note_lift(days, mark)).await;
        noted.map(|(document, _)| document)
    }

    async fn lift(&self, name: &str, deadline: &Deadline) -> Result<(), AttemptError> {
        deadline
            .left(&*self.context.config.clock, &WaitReason::Store("a lift is late".to_owned()))?;
        self.store
            .retry_unavailable(deadline, || self.store.documents().block_writes(name, false))
            .await
    }
}

/// Records that are neither finished nor aborted.
pub(crate) fn open_records() -> Filter {
    Filter::any_of(txn_store::fields::STATE, State::OPEN)
}
