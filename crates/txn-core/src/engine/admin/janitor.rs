//! The janitor: recovers abandoned transactions, and drops old partitions.
//!
//! A scan shows candidates only; each verdict is an acknowledged write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::admin::DomainAdmin;
use crate::engine::admin::scan::{DomainScan, Faults, Suspect, confirm_incarnation};
use crate::engine::attempt_error::AttemptError;
use crate::engine::base::Base;
use crate::engine::context::Context;
use crate::engine::holders::failure_detector::LookedAt;
use crate::engine::holders::foreign_lock::{ForeignLock, Holding};
use crate::engine::holders::unlock::Unlocker;
use crate::engine::recovery::Recovery;
use crate::engine::recovery::roll_forward::{Resolution, Resolutions};
use crate::engine::store::store_access::{ReadPreference, StoreAccess, view};
use crate::engine::table::Table;
use crate::engine::table::format::read_record;
use crate::engine::table::record_lookup::RecordLookup;
use crate::engine::time::Time;
use crate::error::{Error, ErrorKind};
use txn_protocol::document::View;
use txn_protocol::ids::{AttemptId, Day};
use txn_protocol::machines::domain::DomainDocument;
use txn_protocol::record::State;
use txn_protocol::rules::conflict::Requester;
use txn_store::{Key, Read, Version};

/// The findings of the janitor in a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JanitorReport {
    /// Locked documents, with their holders as text. A forged lock need not hold a tid.
    pub locked: Vec<(Key, String)>,
    /// Records that are neither finished nor aborted, with their state.
    pub open: Vec<(AttemptId, State)>,
    /// Damaged documents, records and parts of the domain, with the damage.
    ///
    /// An operator must act. The id `*` means a whole collection.
    pub damaged: Vec<(Key, String)>,
    /// Collections and partitions that could not be read, with the reason.
    ///
    /// The contents of these collections are unknown.
    pub unreachable: Vec<(String, String)>,
    /// Whether a list is incomplete, because it has 10,000 entries.
    pub truncated: bool,
    /// The number of transactions that were decided or applied.
    pub recovered: usize,
    /// The number of partitions that were dropped from the transaction table.
    pub partitions_dropped: usize,
}

impl JanitorReport {
    /// Whether every part was read, and nothing is left over.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.locked.is_empty()
            && self.open.is_empty()
            && self.damaged.is_empty()
            && self.unreachable.is_empty()
    }

    /// Adds a suspect to its list, which has at most `most` entries.
    fn list(&mut self, Suspect { key, holder, state }: Suspect, most: usize) {
        match state {
            Some(state) if self.open.len() < most => self.open.push((holder, state)),
            None if self.locked.len() < most => self.locked.push((key, holder.to_string())),
            _ => self.truncated = true,
        }
    }

    fn add(&mut self, faults: Faults) {
        self.damaged.extend(faults.damaged);
        self.damaged.sort();
        self.damaged.dedup();
        self.unreachable.extend(faults.unreachable);
        self.unreachable.sort();
        self.unreachable.dedup_by(|(name, _), (before, _)| name == before);
        self.truncated |= self.damaged.len() > MOST || self.unreachable.len() > MOST;
        self.damaged.truncate(MOST);
        self.unreachable.truncate(MOST);
    }
}

/// The greatest length of a list of a report.
const MOST: usize = 10_000;

/// The maximum number of suspects at a time, which bounds memory.
const SUSPECTS: usize = 5_000;

/// The number of documents in one read.
const READS: usize = 500;

/// The recovery passes and scans of a domain.
pub(crate) struct Janitor {
    context: Arc<Context>,
    store: Arc<StoreAccess>,
    time: Arc<Time>,
    table: Arc<Table>,
    unlocker: Arc<Unlocker>,
    recovery: Arc<Recovery>,
    admin: Arc<DomainAdmin>,
}

impl Janitor {
    pub(in crate::engine) fn new(
        base: &Base,
        unlocker: Arc<Unlocker>,
        recovery: Arc<Recovery>,
        admin: Arc<DomainAdmin>,
    ) -> Self {
        let Base { context, store, time, table } = base.clone();
        Self { context, store, time, table, unlocker, recovery, admin }
    }

    /// Runs a complete pass, and then scans for leftovers.
    pub(crate) async fn complete_pass(&self) -> Result<JanitorReport, AttemptError> {
        let mut report = JanitorReport::default();
        let faults = self.pass(true, &mut report).await?;
        let look = self.look(&mut report).await;
        report.add(faults);
        look?;
        Ok(report)
    }

    /// Scans for locks, open records and damage, without recovery.
    pub(crate) async fn inspect(&self) -> Result<JanitorReport, AttemptError> {
        let mut report = JanitorReport::default();
        self.look(&mut report).await?;
        Ok(report)
    }

    /// Runs one pass: recovers dead transactions, and drops old days.
    ///
    /// A complete pass refreshes the collections first. Other passes find missed documents later.
    #[tracing::instrument(level = "debug", skip_all, fields(domain = %self.table.domain()))]
    pub(crate) async fn pass(
        &self,
        complete: bool,
        report: &mut JanitorReport,
    ) -> Result<Faults, AttemptError> {
        let mut pass = Pass::new(self);
        let today = self.time.today();
        // A process with a wrong clock neither creates nor drops days.
        let right = self.time.confirm_not_ahead().await;
        let days = if right.is_ok() { vec![today, today.plus(1)] } else { Vec::new() };
        for day in days {
            let deadline = self.context.deadline(self.context.config.timeout);
            if let Err(error) = self.table.ensure_partition(day, &deadline).await {
                pass.faults.note_part(&self.table.alias(day), error);
            }
        }
        let Some(document) = self.document_or_fault(&mut pass.faults).await? else {
            return Ok(pass.faults);
        };
        let mut scan = self.scan(&document, complete);
        let mut suspects = Vec::new();
        while let Some(page) = scan.next().await {
            suspects.extend(page);
            if suspects.len() >= SUSPECTS {
                pass.settle(std::mem::take(&mut suspects)).await;
            }
        }
        pass.settle(suspects).await;
        let dropped = match right {
            Ok(()) => {
                let deadline = self.context.deadline(self.context.config.timeout);
                self.table
                    .drop_old_partitions(today, &mut report.partitions_dropped, &deadline)
                    .await
            }
            Err(error) => Err(error.into()),
        };
        if let Err(error) = dropped {
            pass.faults.note_part(self.table.domain(), error);
        }
        report.recovered = pass.recovered;
        let mut faults = scan.faults;
        faults.damaged.extend(pass.faults.damaged);
        faults.unreachable.extend(pass.faults.unreachable);
        Ok(faults)
    }

    /// Scans the whole domain, and adds the findings to the report.
    async fn look(&self, report: &mut JanitorReport) -> Result<(), AttemptError> {
        let mut faults = Faults::default();
        if let Some(document) = self.document_or_fault(&mut faults).await? {
            let mut scan = self.scan(&document, true);
            while let Some(page) = scan.next().await {
                for suspect in page {
                    report.list(suspect, MOST);
                }
            }
            report.locked.sort();
            report.locked.dedup();
            report.open.sort_by_key(|(tid, _)| *tid);
            report.open.dedup_by_key(|(tid, _)| *tid);
            report.add(scan.faults);
            self.admin.find_lost_parts(&document, &mut faults).await;
        }
        report.add(faults);
        Ok(())
    }

    /// Returns lost and recreated parts, without a scan of documents.
    pub(crate) async fn lost_parts(&self, document: &DomainDocument) -> Faults {
        let mut faults = Faults::default();
        for (name, uid) in &document.collections {
            let deadline = self.context.deadline(2 * self.context.config.lease);
            if let Err(error) = confirm_incarnation(&self.store, name, uid, &deadline).await {
                faults.note_part(name, error);
            }
        }
        if let Err(error) = self.find_lost_partitions(document, &mut faults).await {
            faults.note_part(self.table.domain(), error);
        }
        self.admin.find_lost_parts(document, &mut faults).await;
        faults
    }

    /// Notes missing partitions. The domain document names these partitions, and the store does not
    /// have them.
    async fn find_lost_partitions(
        &self,
        document: &DomainDocument,
        faults: &mut Faults,
    ) -> Result<(), AttemptError> {
        let deadline = self.context.deadline(self.context.config.timeout);
        let existing = self.admin.existing_partitions(&deadline).await?;
        let is_missing = |(day, name): &(&Day, &String)| {
            existing.get(day).is_none_or(|names| !names.iter().any(|one| **one == ***name))
        };
        let missing: Vec<(&Day, &String)> = document.partitions.iter().filter(is_missing).collect();
        if missing.is_empty() {
            return Ok(());
        }
        // Another janitor may have dropped the partition meanwhile.
        let (document, ..) = self.table.domain_document(&deadline).await?;
        for (day, name) in missing {
            if document.partitions.get(day) == Some(name) {
                let lost = self.table.lost_partition(*day, name);
                faults.damaged.insert(Key::new(name.as_str(), "*"), lost.to_string());
            }
        }
        Ok(())
    }

    fn scan(&self, document: &DomainDocument, complete: bool) -> DomainScan<'_> {
        DomainScan::new(&self.context, &self.store, &self.table, document, complete)
    }

    /// Reads the domain document. A lost or damaged document becomes a fault.
    async fn document_or_fault(
        &self,
        faults: &mut Faults,
    ) -> Result<Option<DomainDocument>, AttemptError> {
        let deadline = self.context.deadline(self.context.config.timeout);
        match self.table.domain_document(&deadline).await {
            Ok((document, ..)) => Ok(Some(document)),
            Err(AttemptError::Fail(error)) if faults.note(&self.table.domain_key(), &error) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// The state of one pass.
struct Pass<'a> {
    janitor: &'a Janitor,
    recovered: usize,
    faults: Faults,
    /// Transactions that this pass could not decide.
    ///
    /// The pass skips these transactions, so that the rest gets enough time.
    blocked: BTreeSet<AttemptId>,
    lifted: bool,
}

/// The locks and the record found for one holder.
#[derive(Default)]
struct Held {
    locks: Vec<ForeignLock>,
    /// Whether the scan found the open record, too.
    includes_record: bool,
}

/// The current state of a suspect.
enum SuspectState {
    /// Unchanged, with the view if the suspect is a document.
    Still(Option<View>),
    Gone,
    Unknown,
}

impl<'a> Pass<'a> {
    fn new(janitor: &'a Janitor) -> Self {
        let (faults, blocked) = Default::default();
        Self { janitor, recovered: 0, faults, blocked, lifted: false }
    }

    /// Follows suspects until each is decided, or its owner proves alive.
    ///
    /// The pass first waits for one lease, because the owners may still be at work.
    async fn settle(&mut self, mut suspects: Vec<Suspect>) {
        let config = &self.janitor.context.config;
        let until = self.janitor.context.now() + config.attempt_timeout + 2 * config.lease;
        let mut wait = config.lease;
        while !suspects.is_empty() {
            config.clock.sleep(wait).await;
            wait = config.lease / 2;
            let mut left = Vec::new();
            for some in suspects.chunks(READS) {
                let states = self.states(some).await;
                left.extend(self.settle_some(some, states).await);
            }
            suspects = left;
            self.lift_blocks().await;
            if self.janitor.context.now() >= until {
                return;
            }
        }
    }

    /// Lifts the write blocks of a dead janitor, once per pass.
    ///
    /// All blocked transactions then have a second chance.
    async fn lift_blocks(&mut self) {
        if self.lifted || self.blocked.is_empty() {
            return;
        }
        cov_mark::hit!(janitor_lifts_blocks);
        self.lifted = true;
        let days = std::mem::take(&mut self.blocked).iter().map(|holder| holder.day()).collect();
        let deadline = self.janitor.context.deadline(self.janitor.context.config.timeout);
        if let Err(error) = self.janitor.table.lift_blocks(&days, &deadline).await {
            self.faults.note_part(self.janitor.table.domain(), error);
        }
    }

    async fn states(&mut self, suspects: &[Suspect]) -> Vec<SuspectState> {
        let keys: Vec<Key> = suspects.iter().map(|suspect| suspect.key.clone()).collect();
        let mut reads = self.janitor.store.documents().get_many(&keys).await.into_iter();
        let mut states = Vec::new();
        for suspect in suspects {
            states.push(match reads.next() {
                Some(Read::Found { version, source }) => self.state(suspect, version, &source),
                // The scan itself reports a missing collection.
                Some(Read::Absent | Read::MissingCollection) => SuspectState::Gone,
                Some(Read::Unavailable(_)) | None => SuspectState::Unknown,
            });
        }
        states
    }

    fn state(&mut self, suspect: &Suspect, version: Version, source: &str) -> SuspectState {
        let key = &suspect.key;
        let seen = match suspect.state {
            Some(_) => read_record(key, source).map(|record| (record.is_open(), None)),
            None => view(key, version, source)
                .map(|view| (view.holder() == Some(suspect.holder), Some(view))),
        };
        match seen {
            Ok((true, view)) => SuspectState::Still(view),
            Ok((false, _)) => SuspectState::Gone,
            Err(error) => {
                self.faults.note(key, &error);
                SuspectState::Gone
            }
        }
    }

    /// Decides suspects, holder by holder. Returns the suspects to check again.
    async fn settle_some(&mut self, some: &[Suspect], states: Vec<SuspectState>) -> Vec<Suspect> {
        let mut left = Vec::new();
        let mut holders: BTreeMap<AttemptId, Held> = BTreeMap::new();
        for (suspect, state) in some.iter().zip(states) {
            let view = match state {
                SuspectState::Gone => continue,
                SuspectState::Unknown => {
                    left.push(suspect.clone());
                    continue;
                }
                SuspectState::Still(view) => view,
            };
            if self.blocked.contains(&suspect.holder) {
                if !self.lifted {
                    left.push(suspect.clone());
                }
                continue;
            }
            let held = holders.entry(suspect.holder).or_default();
            match view {
                Some(view) => held.locks.push(ForeignLock { key: suspect.key.clone(), view }),
                None => held.includes_record = true,
            }
        }
        let mut unapplied = BTreeSet::new();
        let mut records = self.records(holders.keys().copied()).await;
        for (holder, held) in holders {
            let found = records.remove(&holder);
            for key in self.recover(holder, held, found).await {
                unapplied.insert((holder, key));
            }
        }
        let is_left = |s: &&Suspect| unapplied.contains(&(s.holder, s.key.clone()));
        left.extend(some.iter().filter(is_left).cloned());
        left
    }

    /// Reads the records of holders, with the time of the read.
    ///
    /// If this read fails, the map is empty, and the caller reads each record alone.
    async fn records(
        &self,
        holders: impl Iterator<Item = AttemptId>,
    ) -> BTreeMap<AttemptId, (RecordLookup, LookedAt)> {
        let janitor = self.janitor;
        let tids: BTreeSet<AttemptId> = holders.collect();
        let asked = janitor.context.now();
        let deadline = janitor.context.deadline(janitor.context.config.lease);
        let found = match tids.is_empty() {
            true => Ok(BTreeMap::new()),
            false => janitor.table.records(&tids, ReadPreference::AnyCopy, &deadline).await,
        };
        let at = LookedAt { asked, answered: janitor.context.now() };
        found.unwrap_or_default().into_iter().map(|(tid, found)| (tid, (found, at))).collect()
    }

    /// Rolls one holder forward, or removes its locks. Returns the keys to check again.
    async fn recover(
        &mut self,
        holder: AttemptId,
        held: Held,
        found: Option<(RecordLookup, LookedAt)>,
    ) -> Vec<Key> {
        let janitor = self.janitor;
        let keys_held = held.locks.iter().map(|lock| lock.key.clone());
        let record = held.includes_record.then(|| janitor.table.record_key(holder));
        let keys_held: Vec<Key> = keys_held.chain(record.clone()).collect();
        let resolved = match self.resolve_lock(holder, held, found).await {
            Ok(resolved) => resolved,
            Err(error) => {
                let error = error.into_error();
                let blocked = error.kind() == ErrorKind::Unavailable;
                if blocked {
                    self.blocked.insert(holder);
                }
                let Some(first) = keys_held.first() else { return keys_held };
                let again = self.is_retried(first, &error);
                return if again { keys_held } else { Vec::new() };
            }
        };
        let mut again = BTreeSet::new();
        for (key, result) in resolved {
            let is_retried = match result {
                Ok(Resolution::Blocked) => true,
                Ok(Resolution::RolledForward | Resolution::Void) => {
                    self.recovered += 1;
                    false
                }
                Err(error) => self.is_retried(&key, &error),
            };
            if is_retried {
                // A participant outside of the scan is checked again through its record.
                let is_held = keys_held.contains(&key);
                again.extend(if is_held { Some(key) } else { record.clone() });
            }
        }
        again.into_iter().collect()
    }

    async fn resolve_lock(
        &self,
        holder: AttemptId,
        Held { locks, includes_record }: Held,
        found: Option<(RecordLookup, LookedAt)>,
    ) -> Result<Resolutions, AttemptError> {
        let janitor = self.janitor;
        let deadline = janitor.context.deadline(janitor.context.config.lease);
        let (found, at) = match found {
            Some(found) => found,
            None => {
                let asked = janitor.context.now();
                let found =
                    janitor.table.record_of(holder, ReadPreference::AnyCopy, &deadline).await?;
                (found, LookedAt { asked, answered: janitor.context.now() })
            }
        };
        let holding = Holding { holder, locks: locks.clone(), found, at, includes_record };
        let mut resolved =
            janitor.recovery.resolve_holder(Requester::NonPreempting, holding, &deadline).await?;
        let is_void =
            |lock: &ForeignLock| matches!(resolved.get(&lock.key), Some(Ok(Resolution::Void)));
        let void: Vec<ForeignLock> = locks.into_iter().filter(is_void).collect();
        // The read is stale: an unlock succeeds only if the lock is unchanged.
        let unlocked = janitor.unlocker.unlock_all(&void).await.into_iter();
        resolved.extend(unlocked.map(|(key, result)| (key, result.map(|_| Resolution::Void))));
        Ok(resolved)
    }

    /// Whether this pass retries after the error. Notes errors without a retry.
    fn is_retried(&mut self, key: &Key, error: &Error) -> bool {
        match error.kind() {
            ErrorKind::Conflict => true,
            ErrorKind::Unavailable => !self.lifted,
            _ => {
                if !self.faults.note(key, error) {
                    self.faults.unreachable.insert(key.to_string(), error.to_string());
                }
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_list_of_a_report_has_its_own_bound() {
        let holder: AttemptId = "5e1f0000-c6a1-11f0-8007-0123456789ab".parse().expect("a tid");
        let suspect =
            |n: u32, state| Suspect { key: Key::new("items", n.to_string()), holder, state };
        let mut report = JanitorReport::default();
        for n in 0..3 {
            report.list(suspect(n, None), 3);
        }
        report.list(suspect(0, Some(State::Pending)), 3);
        assert_eq!((report.locked.len(), report.open.len(), report.truncated), (3, 1, false));
        report.list(suspect(3, None), 3);
        assert_eq!((report.locked.len(), report.truncated), (3, true));
    }
}
