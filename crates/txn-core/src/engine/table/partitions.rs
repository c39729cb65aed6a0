//! Day partitions: one collection of records for each UTC day.
//!
//! The day of a record is the day of its tid. Records are written through the alias of the
//! partition, with `require_alias`.
//!
//! The engine makes a partition in three steps:
//!
//! 1. The engine makes the physical collection.
//! 2. The domain document names the collection, unless the day is gone.
//! 3. The collection gets the alias, by a request of its own.
//!
//! So a process with a slow clock that wakes late never revives a dropped day. Only an acknowledged
//! touch of the domain document says that a day is gone; a missing collection does not.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::table::Table;
use crate::error::Error;
use txn_protocol::ids::Day;
use txn_protocol::machines::domain::DomainDocument;
use txn_protocol::machines::partition::Making;
use txn_protocol::rule::Rule;
use txn_store::{CollectionSpec, Role};

/// The assumed bound on clock differences if no server tells the time.
const UNTOLD_DAYS: i64 = 30;

/// The state of a day's partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Partition {
    Ready,
    /// The day was dropped.
    Gone,
    /// No partition exists yet, so that day has no record.
    Unmade,
}

impl Table {
    /// Ensures that the partition of a day exists, or reports it gone.
    pub(crate) async fn ensure_partition(
        self: &Arc<Self>,
        day: Day,
        deadline: &Deadline,
    ) -> Result<Partition, AttemptError> {
        self.partition(day, true, deadline).await
    }

    /// Finds the partition of a day, by an acknowledged touch.
    ///
    /// The touched document is the domain document. With `make`, the engine creates a missing
    /// partition.
    pub(super) async fn partition(
        self: &Arc<Self>,
        day: Day,
        make: bool,
        deadline: &Deadline,
    ) -> Result<Partition, AttemptError> {
        if self.days.is_known_gone(day) && self.context.rules.decides(Rule::DroppedThrough) {
            return Ok(Partition::Gone);
        }
        if self.days.is_ready(day) {
            return Ok(Partition::Ready);
        }
        let deadline = deadline.clone();
        let table = self.clone();
        let found: BoxFuture<'static, _> = Box::pin(async move {
            let _making = table.making.lock().await;
            table.find_partition(day, make, &deadline).await
        });
        let found = self.context.shared(found);
        found.await?
    }

    /// As [`Self::partition`], for one task at a time.
    async fn find_partition(
        &self,
        day: Day,
        make: bool,
        deadline: &Deadline,
    ) -> Result<Partition, AttemptError> {
        if self.days.is_ready(day) {
            return Ok(Partition::Ready);
        }
        if make && let Some(error) = self.days.refusal(day, self.context.now()) {
            return Err(error.into());
        }
        let mut step = Making::Ask;
        let mut own = String::new();
        let mut missing: Option<String> = None;
        loop {
            step = match step {
                Making::Ask => match (self.ask_domain(day, deadline).await?, missing.take()) {
                    (Making::AddAlias(official), Some(missing)) if official == missing => {
                        return Err(self.lost_partition(day, &official).into());
                    }
                    (Making::Create, _) if !make => return Ok(Partition::Unmade),
                    (step, _) => step,
                },
                Making::Create => match self.may_make(day, deadline).await? {
                    true => {
                        own = self.create_partition(day, deadline).await?;
                        Making::Name
                    }
                    false => Making::Gone,
                },
                Making::Name => self.name_partition(day, &own, deadline).await?,
                Making::AddAlias(official) => {
                    let alias = self.alias(day);
                    let add = || self.store.documents().add_alias(&alias, &official);
                    match self.store.retry_unavailable(deadline, add).await {
                        Ok(()) => Making::Ready,
                        Err(AttemptError::Fail(error)) if error.is_not_found() => {
                            missing = Some(official);
                            Making::Ask
                        }
                        Err(error) => return Err(error),
                    }
                }
                Making::Ready => {
                    self.days.note_ready(day);
                    return Ok(Partition::Ready);
                }
                Making::Gone => return Ok(Partition::Gone),
            };
        }
    }

    /// Asks the domain document for the partition of a day.
    ///
    /// The acknowledged touch of the document proves the read.
    async fn ask_domain(&self, day: Day, deadline: &Deadline) -> Result<Making, AttemptError> {
        let document = match self.context.rules.decides(Rule::TouchGone) {
            true => self.change_domain(deadline, |_| false).await?.0,
            false => self.domain_document(deadline).await?.0,
        };
        Ok(Making::asked(&document, &self.context.rules, day))
    }

    /// Names a new collection as the partition, unless the day has one.
    ///
    /// A collection that lost to another one is dropped.
    async fn name_partition(
        &self,
        day: Day,
        own: &str,
        deadline: &Deadline,
    ) -> Result<Making, AttemptError> {
        let named =
            |document: &mut DomainDocument| document.name_partition(&self.context.rules, day, own);
        let (document, _) = self.change_domain(deadline, named).await?;
        let step = Making::named(&document, day);
        if step != Making::AddAlias(own.to_owned()) {
            let drop = || self.store.documents().drop_collection(own);
            self.store.retry_unavailable(deadline, drop).await?;
        }
        Ok(step)
    }

    /// Whether a day without a partition may get one.
    ///
    /// The day must be within its retention, and not far ahead.
    async fn may_make(&self, day: Day, deadline: &Deadline) -> Result<bool, AttemptError> {
        let today = self.time.today();
        if day < today.plus(-1 - i64::from(self.context.config.retention_days)) {
            // Past its retention and without records, the day is gone, unless an older day is kept.
            let (document, _) = self.change_domain(deadline, |d| d.give_up(day)).await?;
            if document.is_gone(day) {
                return Ok(false);
            }
        }
        let ahead = if self.time.server_time().is_some() { 1 } else { UNTOLD_DAYS };
        if day > today.plus(ahead) {
            // A forged lock or a broken clock must not fill the table with days that are never
            // dropped.
            let message = format!(
                "a transaction of {day} has no record, and today is {today}: the lock is forged, or a clock is wrong; \
                 the lock stays until an operator removes it or that day comes"
            );
            return Err(Error::damaged(message).into());
        }
        Ok(true)
    }

    /// Creates a collection for a day, which is not official yet.
    async fn create_partition(
        &self,
        day: Day,
        deadline: &Deadline,
    ) -> Result<String, AttemptError> {
        let name = format!("{}-{:016x}", self.alias(day), self.context.config.entropy.next_u64());
        let spec = CollectionSpec {
            name: name.clone(),
            role: Role::Partition,
            create: true,
            mappings: None,
        };
        let made = self
            .store
            .retry_unavailable(deadline, || self.store.documents().open_collection(&spec))
            .await;
        let refused_with = match &made {
            Err(AttemptError::Fail(error)) => Some(error),
            Ok(_) | Err(AttemptError::Retry(_)) => None,
        };
        self.days.note_made(day, refused_with, self.context.now());
        made.map(|_| name)
    }

    /// The error of a missing partition that the domain document names.
    pub(crate) fn lost_partition(&self, day: Day, name: &str) -> Error {
        let message = format!(
            "the partition {name:?} of {day} is lost, and with it the outcomes of that day's transactions: restore it, \
             or give it up by Admin::rebuild (docs/operations.md, \"When a part is lost\")"
        );
        Error::damaged(message).at(&self.domain_key())
    }
}
