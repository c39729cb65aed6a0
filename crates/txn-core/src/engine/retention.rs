//! Dropping the days of the transaction table that are past their retention.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::engine::Engine;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::{Deadline, WaitReason};
use crate::engine::domain_document::{DomainDocument, encode};
use crate::event::Event;
use crate::store::{Key, Outcome, Version, Write, WriteOp};
use txn_protocol::rule::Rule;
use txn_protocol::tid::Day;

/// How long a request to lift a block may be under way after it was noted. It carries no condition: no day is dropped
/// into which one may still come.
const LIFT_SETTLES: Duration = Duration::from_secs(600);

/// What was noted for so long is not lifted any more.
const LIFT_WITHIN: Duration = Duration::from_secs(60);

impl Engine {
    /// Drops the partitions of days that are past their retention, oldest first, and counts them. Stops at a day with
    /// anything open.
    pub(crate) async fn drop_old_partitions(
        &self,
        today: Day,
        dropped: &mut usize,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        let last = today.plus(-1 - i64::from(self.config.retention_days));
        let (mut document, ..) = self.domain_document(deadline).await?;
        if !document.dropping.is_empty() {
            // What was only read may vanish, and the partition would be the official one again.
            (document, _) = self.change_domain(deadline, |_| false).await?;
        }
        for (day, name) in &document.dropping {
            // Whoever moved the watermark did not come to this.
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

    /// Drops one day, whose transactions all were resolved before: block, look again completely, move the
    /// watermark, delete. Returns whether it is dropped.
    pub(crate) async fn drop_partition(
        &self,
        day: Day,
        name: &str,
        deadline: &Deadline,
    ) -> Result<bool, AttemptError> {
        let (document, version, _) = self.domain_document(deadline).await?;
        if document.partitions.get(&day).is_none_or(|official| official != name) {
            return Ok(false);
        }
        let now = self.now();
        if let Some(mark) = document.lifted.get(&day)
            && now < self.table.lift_known_since(day, mark, now) + LIFT_SETTLES
        {
            // Whoever blocked it since may be dead. A deletion of what is not there tells, and changes nothing.
            let probe = Write::new(Key::new(name, "no-record"), WriteOp::Delete(version));
            if matches!(
                self.write_one(probe).await,
                Outcome::Rejected(_) | Outcome::RejectedInDoubt(_)
            ) {
                self.lift_blocks(&BTreeSet::from([day]), deadline).await?;
            }
            return Ok(false);
        }
        // What is open is better found before the block than after it.
        if self.has_open_records(name, deadline).await? {
            return Ok(false);
        }
        if self.rules.decides(Rule::BlockBeforeDrop) {
            self.retry_unavailable(deadline, || self.store.block_writes(name, true)).await?;
        }
        if !self.has_open_records(name, deadline).await?
            && self.move_watermark(document, version, day, deadline).await?
        {
            self.remove_partition(day, name, deadline).await?;
            self.emit(&Event::PartitionDropped { day });
            return Ok(true);
        }
        // Still open, or others are at it.
        self.lift_blocks(&BTreeSet::from([day]), deadline).await?;
        Ok(false)
    }

    /// Deletes a partition of a day that is gone, and forgets its name.
    async fn remove_partition(
        &self,
        day: Day,
        name: &str,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        self.retry_unavailable(deadline, || self.store.drop_collection(name)).await?;
        self.change_domain(deadline, |document| document.dropping.remove(&day).is_some()).await?;
        Ok(())
    }

    /// Moves `dropped_through` on the version of the domain document that was read before the block.
    async fn move_watermark(
        &self,
        mut document: DomainDocument,
        version: Version,
        day: Day,
        deadline: &Deadline,
    ) -> Result<bool, AttemptError> {
        document.dropped_through = document.dropped_through.max(Some(day));
        if let Some(name) = document.partitions.remove(&day) {
            document.dropping.insert(day, name);
        }
        document.lifted.remove(&day);
        let replace = WriteOp::Replace(encode(&document)?, version);
        let write = Write::new(self.table.domain_key(), replace);
        if matches!(self.write_one(write).await, Outcome::Applied(_)) {
            self.table.note_dropped(day);
            return Ok(true);
        }
        // A conflict may be our own write.
        let (now, _) = self.change_domain(deadline, |_| false).await?;
        // A day before one that is gone is gone, too, though its partition may still be named.
        Ok(now.is_gone(day) && !now.partitions.contains_key(&day))
    }

    /// Takes the write blocks of these days off, as far as they are not gone. A janitor that is dropping one of them
    /// finds the domain document changed, and begins again.
    pub(crate) async fn lift_blocks(
        &self,
        days: &BTreeSet<Day>,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        let deadline = deadline.at_most(self.now() + LIFT_WITHIN);
        let mark = format!("{:016x}", self.config.entropy.next_u64());
        let note = |document: &mut DomainDocument| {
            let mut noted = false;
            for day in days {
                if document.partitions.contains_key(day) && !document.is_gone(*day) {
                    let before = document.lifted.insert(*day, mark.clone());
                    noted |= before.as_ref() != Some(&mark);
                }
            }
            noted
        };
        let (document, _) = self.change_domain(&deadline, note).await?;
        for (day, name) in document.partitions {
            if document.lifted.get(&day) == Some(&mark) {
                deadline
                    .left(&*self.config.clock, &WaitReason::Store("a lift is late".to_owned()))?;
                self.retry_unavailable(&deadline, || self.store.block_writes(&name, false)).await?;
            }
        }
        Ok(())
    }
}
