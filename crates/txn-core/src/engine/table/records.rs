//! Reads and writes of transaction records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::engine::store::settle::{SettleTarget, Settled};
use crate::engine::store::store_access::{ReadPreference, StoreAccess};
use crate::engine::table::Table;
use crate::engine::table::format::read_record;
use crate::engine::table::partitions::Partition;
use crate::engine::table::record_lookup::RecordLookup;
use crate::engine::wait_reason::WaitReason;
use crate::error::Error;
use txn_protocol::ids::AttemptId;
use txn_protocol::machines::record::RecordVersion;
use txn_protocol::record::{Aborted, Record, State};
use txn_protocol::rule::Rule;
use txn_protocol::rules::conflict::HolderState;
use txn_store::{Key, Outcome, Read, Source, StoreErrorKind, Version, WriteOp};

impl Table {
    /// A record of the attempt, without participants.
    pub(crate) fn new_record(&self, tid: AttemptId, state: State) -> Record {
        let now = self.time.unix_millis();
        Record {
            state,
            tid,
            aborted: None,
            commit_version: None,
            participants: Vec::new(),
            images: Vec::new(),
            metadata: None,
            coordinator: self.context.config.process_name.clone(),
            application: self.context.config.application_name.clone(),
            label: None,
            created_at: now,
            heartbeat_at: None,
            modified_at: now,
        }
    }

    /// An `aborted` record in the name of this process.
    pub(crate) fn aborted_record(&self, tid: AttemptId, why: &str) -> Record {
        let by = self.context.config.process_name.clone();
        let aborted = Some(Aborted { by, why: why.to_owned() });
        Record { aborted, ..self.new_record(tid, State::Aborted) }
    }

    pub(crate) async fn record_of(
        self: &Arc<Self>,
        tid: AttemptId,
        from: ReadPreference,
        deadline: &Deadline,
    ) -> Result<RecordLookup, AttemptError> {
        let mut found = self.records(&BTreeSet::from([tid]), from, deadline).await?;
        found.remove(&tid).ok_or_else(|| Error::unavailable("the store gave no answer").into())
    }

    /// Writes a record, and creates its partition if needed.
    ///
    /// Returns [`Outcome::MissingCollection`] only if the day is gone.
    pub(crate) async fn write_record(
        self: &Arc<Self>,
        tid: AttemptId,
        op: &WriteOp,
        deadline: &Deadline,
    ) -> Result<Outcome, AttemptError> {
        let mut backoff = self.context.backoff();
        let mut in_doubt = false;
        loop {
            let write = self.record_write(tid, op.clone());
            let outcome = self.store.write_to(self.store.records(), &[write]).await.swap_remove(0);
            if outcome != Outcome::MissingCollection {
                return Ok(if in_doubt { outcome.in_doubt() } else { outcome });
            }
            self.days.forget_ready(tid.day());
            if Box::pin(self.ensure_partition(tid.day(), deadline)).await? == Partition::Gone {
                return Ok(outcome);
            }
            let missing = WaitReason::Store("its partition is not known everywhere yet".to_owned());
            if in_doubt {
                self.context.pause(deadline, &mut backoff, missing).await?;
            } else {
                deadline.left(&*self.context.config.clock, &missing)?;
            }
            in_doubt = true;
        }
    }

    /// Reads the records of transactions, from any copy or the primary.
    pub(crate) async fn records(
        self: &Arc<Self>,
        tids: &BTreeSet<AttemptId>,
        from: ReadPreference,
        deadline: &Deadline,
    ) -> Result<BTreeMap<AttemptId, RecordLookup>, AttemptError> {
        let mut found = BTreeMap::new();
        let mut backoff = self.context.backoff();
        loop {
            let asked: Vec<AttemptId> =
                tids.iter().filter(|tid| !found.contains_key(*tid)).copied().collect();
            if asked.is_empty() {
                return Ok(found);
            }
            let gone = |tid: &AttemptId| self.days.is_known_gone(tid.day());
            let (gone, asked): (Vec<AttemptId>, Vec<AttemptId>) = asked.into_iter().partition(gone);
            found.extend(
                gone.into_iter().map(|t| (t, RecordLookup::without_record(HolderState::Gone))),
            );
            let keys: Vec<Key> = asked.iter().map(|tid| self.record_key(*tid)).collect();
            let reads = match from {
                ReadPreference::AnyCopy => self.store.records().get_many(&keys).await,
                ReadPreference::Primary => self.store.records().read_primary(&keys).await,
            };
            let short = reads.len() < keys.len();
            let mut why = short.then(|| "the store answered for too few records".to_owned());
            for ((tid, key), read) in asked.iter().zip(&keys).zip(reads) {
                match read {
                    Read::Found { version, source } => {
                        let record =
                            read_record(key, &source).map_err(|e| e.in_transaction(*tid))?;
                        let standing = RecordVersion::at(record.state, version);
                        let (source, record) = (Some(source), Some(Arc::new(record)));
                        found.insert(*tid, RecordLookup { standing, source, record });
                    }
                    Read::Absent => {
                        found.insert(*tid, RecordLookup::missing());
                    }
                    Read::MissingCollection => {
                        // Boxed, because the future is large and this path is rare.
                        match Box::pin(self.without_partition(*tid, deadline)).await? {
                            Some(lookup) => drop(found.insert(*tid, lookup)),
                            None => {
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
                self.context.pause(deadline, &mut backoff, WaitReason::Store(why)).await?;
            }
        }
    }

    /// Looks up a record whose partition a read did not find.
    ///
    /// `None`: the partition exists, and a later read finds it.
    async fn without_partition(
        self: &Arc<Self>,
        tid: AttemptId,
        deadline: &Deadline,
    ) -> Result<Option<RecordLookup>, AttemptError> {
        self.days.forget_ready(tid.day());
        let partition = match self.context.rules.decides(Rule::MissingIsNotGone) {
            true => self.partition(tid.day(), false, deadline).await?,
            false => Partition::Gone,
        };
        Ok(match partition {
            Partition::Gone => Some(RecordLookup::without_record(HolderState::Gone)),
            Partition::Unmade => Some(RecordLookup::missing()),
            Partition::Ready => None,
        })
    }
}

/// The record of an attempt, as a target of the settlement loop.
pub(crate) struct RecordOf<'a> {
    pub(crate) table: &'a Arc<Table>,
    pub(crate) tid: AttemptId,
}

impl SettleTarget for RecordOf<'_> {
    type Found = RecordLookup;
    type Seen = RecordVersion;

    fn seen(found: &RecordLookup) -> &RecordVersion {
        &found.standing
    }

    fn source(found: &RecordLookup) -> Option<Source> {
        found.source.clone()
    }

    fn store(&self) -> &StoreAccess {
        &self.table.store
    }

    fn key(&self) -> Key {
        self.table.record_key(self.tid)
    }

    async fn write(&self, op: &WriteOp, deadline: &Deadline) -> Result<Outcome, AttemptError> {
        self.table.write_record(self.tid, op, deadline).await
    }

    async fn look(&self, deadline: &Deadline) -> Result<RecordLookup, AttemptError> {
        self.table.record_of(self.tid, ReadPreference::Primary, deadline).await
    }
}

/// The current version of a settled record.
pub(crate) fn settled_version<P>(settled: &Settled<P, RecordLookup>) -> Result<Version, Error> {
    let version = settled.written.or(settled.found.version());
    version.ok_or_else(|| Error::damaged("a record without a version"))
}
