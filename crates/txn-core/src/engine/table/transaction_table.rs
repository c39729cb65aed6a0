//! The transaction table: one partition of records for each UTC day.
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

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::engine::Engine;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::store::store_access::ReadPreference;
use crate::engine::table::domain_document::REGISTRY;
use crate::engine::wait_reason::WaitReason;
use crate::error::Error;
use crate::store::{
    CollectionSpec, Key, Outcome, Read, Role, Source, StoreErrorKind, Version, Write, WriteOp,
};
use txn_protocol::ids::{AttemptId, Day};
use txn_protocol::machines::domain::DomainDocument;
use txn_protocol::machines::partition::Making;
use txn_protocol::machines::record::Standing;
use txn_protocol::record::Record;
use txn_protocol::rule::Rule;
use txn_protocol::rules::conflict::HolderState;

/// The assumed bound on clock differences if no server tells the time.
const UNTOLD_DAYS: i64 = 30;

/// The result of reading a record.
#[derive(Clone, Debug)]
pub(crate) struct RecordLookup {
    /// The state and the version of the record.
    pub(crate) standing: Standing,
    /// The stored bytes, for a touch; `None` without a record.
    pub(crate) source: Option<Source>,
    pub(crate) record: Option<Arc<Record>>,
}

impl RecordLookup {
    fn without_record(state: HolderState) -> Self {
        Self { standing: Standing { state, version: None }, source: None, record: None }
    }

    /// A record known by an acknowledged write, without a read.
    pub(crate) fn known(standing: Standing) -> Self {
        Self { standing, source: None, record: None }
    }

    /// No record, in a day that is not gone.
    pub(crate) fn missing() -> Self {
        Self::without_record(HolderState::Missing)
    }

    pub(crate) fn state(&self) -> HolderState {
        self.standing.state
    }

    pub(crate) fn version(&self) -> Option<Version> {
        self.standing.version
    }

    /// Whether the record shows a commit.
    pub(crate) fn is_committed(&self) -> bool {
        matches!(self.state(), HolderState::Record(state) if state.is_committed())
    }
}

/// The state of a day's partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Partition {
    Ready,
    /// The day was dropped.
    Gone,
    /// No partition exists yet, so that day has no record.
    Unmade,
}

#[derive(Debug)]
pub(crate) struct Table {
    domain: Arc<str>,
    ready: Mutex<BTreeSet<Day>>,
    dropped_through: Mutex<Option<Day>>,
    /// The marks of lifted days, and since when this process knows each.
    lifts: Mutex<BTreeMap<Day, (String, Duration)>>,
    /// Allows one task at a time to create partitions.
    making: tokio::sync::Mutex<()>,
    refused: Mutex<BTreeMap<Day, RefusedPartition>>,
}

/// A partition that the store refused to create.
///
/// This process does not retry before `until`.
#[derive(Debug)]
struct RefusedPartition {
    error: Error,
    pause: Duration,
    until: Duration,
}

/// The pause after the first refusal. Each further refusal doubles the pause.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

const LONGEST_PAUSE: Duration = Duration::from_secs(300);

impl Table {
    pub(crate) fn new(domain: &str) -> Self {
        Self {
            domain: domain.into(),
            ready: Mutex::default(),
            dropped_through: Mutex::default(),
            lifts: Mutex::default(),
            making: tokio::sync::Mutex::default(),
            refused: Mutex::default(),
        }
    }

    pub(crate) fn domain(&self) -> &Arc<str> {
        &self.domain
    }

    /// The name of a collection of this domain.
    ///
    /// Dashes become dots, which no domain name contains. So the names of `shop-eu` do not begin
    /// with `shop-`, and privileges on the prefix of one domain reach no other domain.
    pub(crate) fn collection_name(&self, of: &str) -> String {
        format!("{}-{of}", self.domain.replace('-', "."))
    }

    /// The prefix of partition names and their aliases.
    pub(crate) fn prefix(&self) -> String {
        format!("txn-{}", self.collection_name(""))
    }

    /// The alias of a day's partition.
    pub(crate) fn alias(&self, day: Day) -> String {
        format!("{}{day}", self.prefix())
    }

    /// The key of an attempt's record.
    pub(crate) fn record_key(&self, tid: AttemptId) -> Key {
        Key::new(self.alias(tid.day()), tid.to_string())
    }

    /// Whether a document is a record of the domain.
    pub(crate) fn has_record(&self, key: &Key) -> bool {
        key.collection.starts_with(&self.prefix())
    }

    pub(crate) fn domain_key(&self) -> Key {
        Key::new(REGISTRY, format!("domain:{}", self.domain))
    }

    /// The key of the document that elects the janitor.
    pub(crate) fn janitor_key(&self) -> Key {
        Key::new(REGISTRY, format!("janitor:{}", self.domain))
    }

    pub(crate) fn record_write(&self, tid: AttemptId, op: WriteOp) -> Write {
        Write { key: self.record_key(tid), require_alias: true, op }
    }

    fn is_known_gone(&self, day: Day) -> bool {
        self.dropped_through.lock().is_some_and(|through| day <= through)
    }

    pub(crate) fn note_dropped(&self, through: Day) {
        let mut dropped = self.dropped_through.lock();
        *dropped = (*dropped).max(Some(through));
        self.ready.lock().retain(|day| *day > through);
        self.lifts.lock().retain(|day, _| *day > through);
    }

    /// Since when this process knows the mark of a lifted day.
    ///
    /// The time is on the monotonic clock.
    pub(crate) fn lift_known_since(&self, day: Day, mark: &str, now: Duration) -> Duration {
        let mut lifts = self.lifts.lock();
        let known = lifts.entry(day).or_default();
        if known.0 != mark {
            *known = (mark.to_owned(), now);
        }
        known.1
    }

    /// The error of the last refusal, while a retry is too early.
    fn refusal(&self, day: Day, now: Duration) -> Option<Error> {
        let refused = self.refused.lock();
        let refused = refused.get(&day).filter(|refused| now < refused.until)?;
        let pause = (refused.until - now).as_secs() + 1;
        Some(refused.error.noting(&format!("this process tries again in {pause} s")))
    }

    /// Notes whether the store created a partition.
    fn note_made(&self, day: Day, refused_with: Option<&Error>, now: Duration) {
        let mut refused = self.refused.lock();
        let last = refused.remove(&day);
        if let Some(error) = refused_with {
            let pause = last.map_or(FIRST_PAUSE, |last| (2 * last.pause).min(LONGEST_PAUSE));
            let error = error.again();
            refused.insert(day, RefusedPartition { error, pause, until: now + pause });
        }
    }

    fn forget_ready(&self, day: Day) {
        self.ready.lock().remove(&day);
    }
}

impl Engine {
    /// Ensures that the partition of a day exists, or reports it gone.
    pub(crate) async fn ensure_partition(
        &self,
        day: Day,
        deadline: &Deadline,
    ) -> Result<Partition, AttemptError> {
        self.partition(day, true, deadline).await
    }

    /// Finds the partition of a day, by an acknowledged touch.
    ///
    /// The touched document is the domain document. With `make`, the engine creates a missing
    /// partition.
    async fn partition(
        &self,
        day: Day,
        make: bool,
        deadline: &Deadline,
    ) -> Result<Partition, AttemptError> {
        if self.table.is_known_gone(day) && self.rules.decides(Rule::DroppedThrough) {
            return Ok(Partition::Gone);
        }
        if self.table.ready.lock().contains(&day) {
            return Ok(Partition::Ready);
        }
        let deadline = deadline.clone();
        let found = self.shared(|engine| -> BoxFuture<'static, _> {
            Box::pin(async move {
                let _making = engine.table.making.lock().await;
                engine.find_partition(day, make, &deadline).await
            })
        });
        found.await?
    }

    /// As [`Self::partition`], for one task at a time.
    async fn find_partition(
        &self,
        day: Day,
        make: bool,
        deadline: &Deadline,
    ) -> Result<Partition, AttemptError> {
        if self.table.ready.lock().contains(&day) {
            return Ok(Partition::Ready);
        }
        if make && let Some(error) = self.table.refusal(day, self.now()) {
            return Err(error.into());
        }
        let mut step = Making::Ask;
        let mut own = String::new();
        let mut missing: Option<String> = None;
        loop {
            step = match step {
                Making::Ask => {
                    let document = match self.rules.decides(Rule::TouchGone) {
                        true => self.change_domain(deadline, |_| false).await?.0,
                        false => self.domain_document(deadline).await?.0,
                    };
                    match (Making::asked(&document, &self.rules, day), missing.take()) {
                        (Making::AddAlias(official), Some(missing)) if official == missing => {
                            return Err(self.lost_partition(day, &official).into());
                        }
                        (Making::Create, _) if !make => return Ok(Partition::Unmade),
                        (step, _) => step,
                    }
                }
                Making::Create => match self.may_make(day, deadline).await? {
                    true => {
                        own = self.create_partition(day, deadline).await?;
                        Making::Name
                    }
                    false => Making::Gone,
                },
                Making::Name => {
                    let named = |document: &mut DomainDocument| {
                        document.name_partition(&self.rules, day, &own)
                    };
                    let (document, _) = self.change_domain(deadline, named).await?;
                    let step = Making::named(&document, day);
                    if step != Making::AddAlias(own.clone()) {
                        self.retry_unavailable(deadline, || self.store.drop_collection(&own))
                            .await?;
                    }
                    step
                }
                Making::AddAlias(official) => {
                    let alias = self.table.alias(day);
                    let add = || self.store.add_alias(&alias, &official);
                    match self.retry_unavailable(deadline, add).await {
                        Ok(()) => Making::Ready,
                        Err(AttemptError::Fail(error)) if error.is_not_found() => {
                            missing = Some(official);
                            Making::Ask
                        }
                        Err(error) => return Err(error),
                    }
                }
                Making::Ready => {
                    self.table.ready.lock().insert(day);
                    return Ok(Partition::Ready);
                }
                Making::Gone => return Ok(Partition::Gone),
            };
        }
    }

    /// Whether a day without a partition may get one.
    ///
    /// The day must be within its retention, and not far ahead.
    async fn may_make(&self, day: Day, deadline: &Deadline) -> Result<bool, AttemptError> {
        let today = self.today();
        if day < today.plus(-1 - i64::from(self.config.retention_days)) {
            // Past its retention and without records, the day is gone, unless an older day is kept.
            let (document, _) = self.change_domain(deadline, |d| d.give_up(day)).await?;
            if document.is_gone(day) {
                return Ok(false);
            }
        }
        let ahead = if self.server_time().is_some() { 1 } else { UNTOLD_DAYS };
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
        let name = format!("{}-{:016x}", self.table.alias(day), self.config.entropy.next_u64());
        let spec = CollectionSpec {
            name: name.clone(),
            role: Role::Partition,
            create: true,
            mappings: None,
        };
        let made = self.retry_unavailable(deadline, || self.store.open_collection(&spec)).await;
        let refused_with = match &made {
            Err(AttemptError::Fail(error)) => Some(error),
            Ok(_) | Err(AttemptError::Retry(_)) => None,
        };
        self.table.note_made(day, refused_with, self.now());
        made.map(|_| name)
    }

    /// The error of a missing partition that the domain document names.
    pub(crate) fn lost_partition(&self, day: Day, name: &str) -> Error {
        let message = format!(
            "the partition {name:?} of {day} is lost, and with it the outcomes of that day's transactions: restore it, \
             or give it up by Admin::rebuild (docs/operations.md, \"When a part is lost\")"
        );
        Error::damaged(message).at(&self.table.domain_key())
    }

    /// Writes a record, and creates its partition if needed.
    ///
    /// Returns [`Outcome::MissingCollection`] only if the day is gone.
    pub(crate) async fn write_record(
        &self,
        tid: AttemptId,
        op: &WriteOp,
        deadline: &Deadline,
    ) -> Result<Outcome, AttemptError> {
        let mut backoff = self.backoff();
        let mut in_doubt = false;
        loop {
            let write = self.table.record_write(tid, op.clone());
            let outcome = self.write_to(&*self.records, &[write]).await.swap_remove(0);
            if outcome != Outcome::MissingCollection {
                return Ok(if in_doubt { outcome.in_doubt() } else { outcome });
            }
            self.table.forget_ready(tid.day());
            if Box::pin(self.ensure_partition(tid.day(), deadline)).await? == Partition::Gone {
                return Ok(outcome);
            }
            let missing = WaitReason::Store("its partition is not known everywhere yet".to_owned());
            if in_doubt {
                self.pause(deadline, &mut backoff, missing).await?;
            } else {
                deadline.left(&*self.config.clock, &missing)?;
            }
            in_doubt = true;
        }
    }

    /// Reads the records of transactions, from any copy or the primary.
    pub(crate) async fn records(
        &self,
        tids: &BTreeSet<AttemptId>,
        from: ReadPreference,
        deadline: &Deadline,
    ) -> Result<BTreeMap<AttemptId, RecordLookup>, AttemptError> {
        let mut found = BTreeMap::new();
        let mut backoff = self.backoff();
        loop {
            let asked: Vec<AttemptId> =
                tids.iter().filter(|tid| !found.contains_key(*tid)).copied().collect();
            if asked.is_empty() {
                return Ok(found);
            }
            let gone = |tid: &AttemptId| self.table.is_known_gone(tid.day());
            let (gone, asked): (Vec<AttemptId>, Vec<AttemptId>) = asked.into_iter().partition(gone);
            found.extend(
                gone.into_iter().map(|t| (t, RecordLookup::without_record(HolderState::Gone))),
            );
            let keys: Vec<Key> = asked.iter().map(|tid| self.table.record_key(*tid)).collect();
            let reads = match from {
                ReadPreference::AnyCopy => self.records.get_many(&keys).await,
                ReadPreference::Primary => self.records.read_primary(&keys).await,
            };
            let short = reads.len() < keys.len();
            let mut why = short.then(|| "the store answered for too few records".to_owned());
            for ((tid, key), read) in asked.iter().zip(&keys).zip(reads) {
                match read {
                    Read::Found { version, source } => {
                        let record = crate::engine::table::format::read_record(key, &source)
                            .map_err(|e| e.in_transaction(*tid))?;
                        let standing = Standing::at(record.state, version);
                        let (source, record) = (Some(source), Some(Arc::new(record)));
                        found.insert(*tid, RecordLookup { standing, source, record });
                    }
                    Read::Absent => {
                        found.insert(*tid, RecordLookup::missing());
                    }
                    Read::MissingCollection => {
                        self.table.forget_ready(tid.day());
                        let partition = match self.rules.decides(Rule::MissingIsNotGone) {
                            // Boxed, because the future is large and this path is rare.
                            true => Box::pin(self.partition(tid.day(), false, deadline)).await?,
                            false => Partition::Gone,
                        };
                        match partition {
                            Partition::Gone => {
                                found.insert(*tid, RecordLookup::without_record(HolderState::Gone));
                            }
                            Partition::Unmade => {
                                found.insert(*tid, RecordLookup::missing());
                            }
                            Partition::Ready => {
                                let none = || format!("no copy of {} yet", key.collection);
                                why.get_or_insert_with(none);
                            }
                        }
                    }
                    Read::Unavailable(error) if error.kind == StoreErrorKind::Unavailable => {
                        why = Some(error.message);
                    }
                    Read::Unavailable(error) => return Err(Error::from(error).at(key).into()),
                }
            }
            if let Some(why) = why {
                self.pause(deadline, &mut backoff, WaitReason::Store(why)).await?;
            }
        }
    }
}
