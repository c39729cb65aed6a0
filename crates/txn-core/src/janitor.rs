//! The janitor: finds transactions that everybody forgot, decides and applies them, and drops old
//! partitions. It searches only to discover candidates; every verdict is by acknowledged writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::document::View;
use crate::domain::Domain;
use crate::engine::{Engine, From, view};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::guard::Guard;
use crate::record::{Record, State};
use crate::resolve::{Holding, Lock, Met, by_holder};
use crate::rules::conflict::Requester;
use crate::stop::{Hindrance, Patience, Stop};
use crate::store::{
    CollectionSpec, Cursor, Filter, Key, Outcome, Page, Role, Version, Write, WriteOp,
};
use crate::table::{DomainDocument, Found};
use crate::tid::{Day, Tid};

/// What a look at a domain found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Locked documents, with their holders as text (a forged lock need not be a tid).
    pub locked: Vec<(Key, String)>,
    /// Records that are neither finished nor aborted, with their state.
    pub open: Vec<(Tid, State)>,
    /// Documents and records that a person must look at, and what is wrong with them.
    pub damaged: Vec<(Key, String)>,
    /// How many transactions were decided or applied.
    pub recovered: usize,
    /// How many partitions of the transaction table were dropped.
    pub partitions_dropped: usize,
}

impl Report {
    /// Whether nothing is left over.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.locked.is_empty() && self.open.is_empty() && self.damaged.is_empty()
    }
}

/// Documents that a scan asks for at once.
const PAGE: usize = 500;

/// How long a request to lift a block may be under way after it was noted. It carries no condition: no day is dropped
/// into which one may still come.
const LIFT_SETTLES: Duration = Duration::from_secs(600);

/// What was noted for so long is not lifted any more.
const LIFT_WITHIN: Duration = Duration::from_secs(60);

/// Starts the janitor task of a domain, if one is wanted.
pub(crate) fn start(engine: &Arc<Engine>) {
    let Some(interval) = engine.config.janitor_interval else { return };
    let engine_of_task = Arc::downgrade(engine);
    let closing = engine.closing.clone();
    let clock = engine.config.clock.clone();
    engine.tasks.spawn(async move {
        loop {
            tokio::select! {
                biased;
                () = closing.cancelled() => return,
                () = clock.sleep(interval) => {}
            }
            let Some(engine) = engine_of_task.upgrade() else { return };
            tokio::select! {
                biased;
                () = closing.cancelled() => return,
                passed = engine.janitor_pass() => {
                    if let Err(stop) = passed {
                        tracing::warn!(why = %stop.into_error(), "the janitor could not finish its pass");
                    }
                }
            }
        }
    });
}

impl Domain {
    /// One pass of the janitor: recovers what stands unchanged for its lease, drops old partitions, and reports what is left
    /// over afterwards. Takes at least one lease if anything is found.
    ///
    /// # Errors
    /// As the store says.
    ///
    /// # Cancel safety
    /// Dropped, what was done is done; every step stands for itself.
    pub async fn janitor_pass(&self) -> Result<Report> {
        self.engine.janitor_pass().await.map_err(Stop::into_error)
    }

    /// Looks for locks and open records, and changes nothing. What is under way at the moment shows up too.
    ///
    /// # Errors
    /// As the store says.
    pub async fn inspect(&self) -> Result<Report> {
        let engine = &self.engine;
        let patience = engine.patience(engine.config.deadline);
        let look = async {
            let (document, ..) = engine.domain_document(&patience).await?;
            engine.look(&document, &patience).await.map(Candidates::report)
        };
        look.await.map_err(Stop::into_error)
    }
}

/// What a scan found. Only a hint: scans are stale, and may miss things.
#[derive(Default)]
struct Candidates {
    locked: Vec<(Key, View, Tid)>,
    open: BTreeMap<Tid, (Version, Record)>,
    damaged: Vec<(Key, String)>,
}

impl Candidates {
    fn report(self) -> Report {
        Report {
            locked: self.locked.into_iter().map(|(key, _, tid)| (key, tid.to_string())).collect(),
            open: self.open.into_iter().map(|(tid, (_, record))| (tid, record.state)).collect(),
            damaged: self.damaged,
            ..Report::default()
        }
    }
}

impl Engine {
    #[tracing::instrument(level = "debug", skip_all, fields(domain = %self.table.domain()))]
    async fn janitor_pass(&self) -> Result<Report, Stop> {
        let patience = self.patience(self.config.deadline);
        let today = Day::of_unix_time(self.config.clock.wall());
        for day in [today, today.plus(1)] {
            self.ensure_partition(day, &patience).await?;
        }
        let (document, ..) = self.domain_document(&patience).await?;
        let mut recovered = 0;
        let mut left = self.look(&document, &patience).await?;
        // What stands unchanged long enough is dead; what moves on is not ours.
        let longest = self.config.transaction_limit + self.config.lease;
        let until = self.now() + longest;
        let mut damaged = BTreeMap::new();
        let mut hindered = BTreeSet::new();
        while !(left.locked.is_empty() && left.open.is_empty()) {
            let first_hindrance = hindered.is_empty();
            let busy =
                self.recover(&left, &mut recovered, &mut damaged, &mut hindered, &patience).await?;
            if first_hindrance && !hindered.is_empty() {
                self.lift_blocks(&hindered, &patience).await?;
            }
            left = self.look(&document, &patience).await?;
            left.locked.retain(|(key, ..)| !damaged.contains_key(key));
            left.open.retain(|tid, _| !damaged.contains_key(&self.table.record_key(*tid)));
            if !busy || self.now() >= until {
                break;
            }
            self.config.clock.sleep(self.config.lease / 2).await;
        }
        let dropped = self.drop_old_partitions(today, &patience).await?;
        let (document, ..) = self.domain_document(&patience).await?;
        let mut report = self.look(&document, &patience).await?.report();
        report.damaged.extend(damaged.into_values());
        (report.recovered, report.partitions_dropped) = (recovered, dropped);
        Ok(report)
    }

    /// Decides and applies what is dead. Returns whether something may still be alive, or could not be decided:
    /// then its day is added to `hindered`, and the others have their turn.
    async fn recover(
        &self,
        found: &Candidates,
        recovered: &mut usize,
        damaged: &mut Damages,
        hindered: &mut BTreeSet<Day>,
        patience: &Patience,
    ) -> Result<bool, Stop> {
        let mut busy = false;
        let each = || patience.at_most(self.now() + 2 * self.config.lease);
        let mut note = |met: &Key, holder: Tid, stop: Stop| match stop {
            Stop::Fail(error) if error.kind() == ErrorKind::Unavailable => {
                hindered.insert(holder.day());
                Ok(true)
            }
            Stop::Fail(error) if error.kind() == ErrorKind::Conflict => Ok(true),
            stop => note_damage(damaged, met, stop).map(|()| false),
        };
        let locks = found.locked.iter();
        let locks = locks.map(|(key, view, _)| Lock { key: key.clone(), view: view.clone() });
        let mut holders = by_holder(locks);
        for tid in found.open.keys() {
            holders.entry(*tid).or_default();
        }
        let tids: Vec<Tid> = holders.keys().copied().collect();
        let mut records = BTreeMap::new();
        for tids in tids.chunks(RECORDS) {
            let tids = tids.iter().copied().collect();
            let at = self.now();
            // Where one of them can not be read, each is asked for alone.
            let found = self.records(&tids, From::AnyCopy, &each()).await.unwrap_or_default();
            records.extend(found.into_iter().map(|(tid, found)| (tid, (found, at))));
        }
        for (holder, locks) in holders {
            let met_at = locks.first().map_or(self.table.record_key(holder), |l| l.key.clone());
            let whole = found.open.contains_key(&holder);
            let known = records.remove(&holder);
            match self.recover_one(holder, locks, whole, known, &each()).await {
                Ok(recovery) => {
                    busy |= recovery.busy;
                    *recovered += recovery.settled;
                    for (key, error) in recovery.unsettled {
                        // A document that can not be written for now is no matter of its holder's day.
                        let later = error.kind() == ErrorKind::Unavailable;
                        busy |= later || note(&key, holder, error.into())?;
                    }
                }
                Err(stop) => busy |= note(&met_at, holder, stop)?,
            }
        }
        Ok(busy)
    }

    /// Decides one holder, applies it or takes its locks off.
    async fn recover_one(
        &self,
        holder: Tid,
        locks: Vec<Lock>,
        whole: bool,
        known: Option<(Found, Duration)>,
        patience: &Patience,
    ) -> Result<Recovered, Stop> {
        let now = self.now();
        let (found, at) = match known {
            Some(known) => known,
            None => (self.record_of(holder, From::AnyCopy, patience).await?, now),
        };
        let mut recovered = Recovered::default();
        let holding = Holding { holder, locks: locks.clone(), found, at, whole };
        let mut met = self.meet_holder(Requester::Patient, holding, patience).await?;
        let is_void = |lock: &Lock| matches!(met.get(&lock.key), Some(Ok(Met::Void)));
        let void: Vec<Lock> = locks.into_iter().filter(is_void).collect();
        // A scan is stale: a lock is taken off only if it still stands there.
        let unlocked = self.unlock_all(&void).await.into_iter();
        met.extend(unlocked.map(|(key, result)| (key, result.map(|_| Met::Void))));
        for (key, result) in met {
            match result {
                Ok(Met::Busy) => recovered.busy = true,
                Ok(Met::Applied | Met::Void) => recovered.settled += 1,
                Err(error) => recovered.unsettled.push((key, error)),
            }
        }
        Ok(recovered)
    }

    /// Takes the write blocks of these days off, as far as they are not gone. A janitor that is dropping one of them
    /// finds the domain document changed, and begins again.
    async fn lift_blocks(&self, days: &BTreeSet<Day>, patience: &Patience) -> Result<(), Stop> {
        let patience = patience.at_most(self.now() + LIFT_WITHIN);
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
        let (document, _) = self.change_domain(&patience, note).await?;
        for (day, name) in document.partitions {
            if document.lifted.get(&day) == Some(&mark) {
                patience
                    .left(&*self.config.clock, &Hindrance::Store("a lift is late".to_owned()))?;
                self.patiently(&patience, || self.store.block_writes(&name, false)).await?;
            }
        }
        Ok(())
    }

    /// Scans every collection of the domain for locks, and every partition for open records.
    async fn look(
        &self,
        document: &DomainDocument,
        patience: &Patience,
    ) -> Result<Candidates, Stop> {
        let mut found = Candidates::default();
        for (name, uid) in &document.collections {
            let spec = CollectionSpec {
                name: name.clone(),
                role: Role::Data { owner: None },
                create: false,
                mappings: None,
            };
            match self.patiently(patience, || self.store.open_collection(&spec)).await {
                Ok(info) if *info.uid == **uid => {}
                Ok(_) => {
                    let what = "the collection was dropped and made again: its transactions are lost; \
                                open it anew to claim it";
                    found.damaged.push((Key::new(name.as_str(), "*"), what.to_owned()));
                    continue;
                }
                Err(Stop::Fail(error)) if error.kind() == ErrorKind::Misconfigured => {
                    found.damaged.push((Key::new(name.as_str(), "*"), error.to_string()));
                    continue;
                }
                Err(stop) => return Err(stop),
            }
            let locked = Filter::Exists(crate::fields::TRANSACTION_TID);
            for (key, version, source) in self.scan_all(name, &locked, patience).await? {
                match view(&key, version, &source) {
                    Ok(view) => {
                        if let Some(holder) = view.holder() {
                            found.locked.push((key, view, holder));
                        }
                    }
                    Err(error) => found.damaged.push((key, error.to_string())),
                }
            }
        }
        for (day, name) in &document.partitions {
            let records = match self.scan_all(name, &open_records(), patience).await {
                Ok(records) => records,
                Err(Stop::Fail(error)) if error.kind() == ErrorKind::Misconfigured => {
                    // Another janitor may have dropped it meanwhile.
                    if !self.domain_document(patience).await?.0.is_gone(*day) {
                        found.damaged.push((Key::new(name.as_str(), "*"), error.to_string()));
                    }
                    continue;
                }
                Err(stop) => return Err(stop),
            };
            for (key, version, source) in records {
                match Record::parse(&source) {
                    Ok(record) => {
                        found.open.insert(record.tid, (version, record));
                    }
                    Err(error) => found.damaged.push((key, error.to_string())),
                }
            }
        }
        Ok(found)
    }

    async fn scan_all(
        &self,
        collection: &str,
        filter: &Filter,
        patience: &Patience,
    ) -> Result<Vec<(Key, Version, crate::store::Source)>, Stop> {
        self.patiently(patience, || self.store.refresh(collection)).await?;
        let mut documents = Vec::new();
        let mut from: Option<Cursor> = None;
        loop {
            let cursor = from.take();
            let scan = || self.store.scan(collection, filter, PAGE, cursor.clone());
            let Page { documents: page, next } = self.patiently(patience, scan).await?;
            documents.extend(page);
            match next {
                Some(next) => from = Some(next),
                None => return Ok(documents),
            }
        }
    }

    /// Drops the partitions of days that are past their retention, oldest first. Stops at a day with anything open.
    async fn drop_old_partitions(&self, today: Day, patience: &Patience) -> Result<usize, Stop> {
        let last = today.plus(-1 - i64::from(self.config.retention_days));
        let (mut document, ..) = self.domain_document(patience).await?;
        if !document.dropping.is_empty() {
            // What was only read may vanish, and the partition would be the official one again.
            (document, _) = self.change_domain(patience, |_| false).await?;
        }
        for (day, name) in &document.dropping {
            // Whoever moved the watermark did not come to this.
            self.remove_partition(*day, name, patience).await?;
        }
        let old = document.partitions.into_iter().filter(|(day, _)| *day <= last);
        let mut dropped = 0;
        for (day, name) in old {
            if !self.drop_partition(day, &name, patience).await? {
                break;
            }
            dropped += 1;
        }
        Ok(dropped)
    }

    /// Drops one day, whose transactions all were resolved before: block, look again completely, move the
    /// watermark, delete. Returns whether it is dropped.
    async fn drop_partition(
        &self,
        day: Day,
        name: &str,
        patience: &Patience,
    ) -> Result<bool, Stop> {
        let (document, version, _) = self.domain_document(patience).await?;
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
                self.lift_blocks(&BTreeSet::from([day]), patience).await?;
            }
            return Ok(false);
        }
        // What is open is better found before the block than after it.
        if self.has_open_records(name, patience).await? {
            return Ok(false);
        }
        if Guard::BlockBeforeDrop.stands() {
            self.patiently(patience, || self.store.block_writes(name, true)).await?;
        }
        if !self.has_open_records(name, patience).await?
            && self.move_watermark(document, version, day, patience).await?
        {
            self.remove_partition(day, name, patience).await?;
            self.tell(&Event::PartitionDropped { day });
            return Ok(true);
        }
        // Still open, or others are at it.
        self.lift_blocks(&BTreeSet::from([day]), patience).await?;
        Ok(false)
    }

    /// Looks through a whole partition for records that keep its day from being dropped.
    async fn has_open_records(&self, name: &str, patience: &Patience) -> Result<bool, Stop> {
        let found = self.scan_all(name, &open_records(), patience).await?;
        Ok(!found.is_empty() && Guard::DropOnlyResolved.stands())
    }

    /// Deletes a partition of a day that is gone, and forgets its name.
    async fn remove_partition(
        &self,
        day: Day,
        name: &str,
        patience: &Patience,
    ) -> Result<(), Stop> {
        self.patiently(patience, || self.store.drop_collection(name)).await?;
        self.change_domain(patience, |document| document.dropping.remove(&day).is_some()).await?;
        Ok(())
    }

    /// Moves `dropped_through` on the version of the domain document that was read before the block.
    async fn move_watermark(
        &self,
        mut document: DomainDocument,
        version: Version,
        day: Day,
        patience: &Patience,
    ) -> Result<bool, Stop> {
        document.dropped_through = document.dropped_through.max(Some(day));
        if let Some(name) = document.partitions.remove(&day) {
            document.dropping.insert(day, name);
        }
        document.lifted.remove(&day);
        let replace = WriteOp::Replace(crate::table::encode(&document)?, version);
        let write = Write::new(self.table.domain_key(), replace);
        if matches!(self.write_one(write).await, Outcome::Applied(_)) {
            self.table.note_dropped(day);
            return Ok(true);
        }
        // A conflict may be our own write.
        let (now, _) = self.change_domain(patience, |_| false).await?;
        // A day before one that is gone is gone, too, though its partition may still be named.
        Ok(now.is_gone(day) && !now.partitions.contains_key(&day))
    }
}

/// Records that the janitor asks for at once.
const RECORDS: usize = 100;

/// What became of what one holder left.
#[derive(Default)]
struct Recovered {
    /// It may still be alive.
    busy: bool,
    settled: usize,
    unsettled: Vec<(Key, Error)>,
}

/// Records that are neither finished nor aborted.
fn open_records() -> Filter {
    Filter::AnyOf(crate::fields::STATE, State::OPEN.to_vec())
}

/// What was met, and for each the document that is to be looked at and what is wrong with it.
type Damages = BTreeMap<Key, (Key, String)>;

/// Damage is reported; anything else ends the pass.
fn note_damage(damaged: &mut Damages, met: &Key, stop: Stop) -> Result<(), Stop> {
    match stop {
        Stop::Fail(error)
            if matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Misconfigured) =>
        {
            let document = error.document().unwrap_or(met).clone();
            damaged.insert(met.clone(), (document, error.to_string()));
            Ok(())
        }
        stop => Err(stop),
    }
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransactionOutcome {
    /// It is committed, as this version.
    Committed {
        /// The version of everything that it wrote.
        commit_tid: Tid,
    },
    /// It never commits.
    Aborted,
    /// Its day was dropped from the transaction table: no longer known.
    Forgotten,
}

impl Domain {
    /// What became of a transaction, by the tid of its attempt. The answer is final: a transaction that is undecided is watched for
    /// one lease, and aborted if it shows no sign of life.
    ///
    /// A one-document transaction leaves no record: do not ask for one (its errors carry no tid).
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if it is still under way when the deadline passes;
    /// [`ErrorKind::Unavailable`] if the store does not answer.
    pub async fn outcome(&self, tid: Tid) -> Result<TransactionOutcome> {
        let engine = &self.engine;
        let patience = engine.patience(engine.config.deadline);
        engine.outcome(tid, &patience).await.map_err(Stop::into_error)
    }
}

impl Engine {
    async fn outcome(&self, tid: Tid, patience: &Patience) -> Result<TransactionOutcome, Stop> {
        use crate::resolve::Decided;
        use crate::rules::conflict::{Conflict, HolderState, conflict};
        let key = self.table.record_key(tid);
        loop {
            let found = self.record_of(tid, From::Primary, patience).await?;
            if found.state == HolderState::Gone {
                return Ok(TransactionOutcome::Forgotten);
            }
            let lease = self.config.lease_of(tid.attempt());
            let signs = (found.version(), None);
            let dead = !self.locals.is_live(tid)
                && self.liveness.is_dead(tid, &key, signs, lease, self.now());
            if conflict(Requester::Patient, tid, found.state, dead) == Conflict::Resolve {
                let why = "its outcome was asked for, and it showed no sign of life for one lease";
                return match self.decide(tid, found, why, patience).await? {
                    Decided::Aborted => Ok(TransactionOutcome::Aborted),
                    Decided::Committed { record, .. } => match record.commit_tid {
                        Some(commit_tid) => Ok(TransactionOutcome::Committed { commit_tid }),
                        None => Err(Error::damaged("the committed record has no commit tid")
                            .in_transaction(tid)
                            .into()),
                    },
                };
            }
            patience
                .pause(
                    &*self.config.clock,
                    lease / 4,
                    Hindrance::Others { key: key.clone(), holder: tid },
                )
                .await?;
        }
    }
}
