//! The barrier: waits for the apply of all earlier commits.
//!
//! A refresh of each collection follows, so that searches see these commits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::attempt_error::AttemptError;
use crate::engine::base::Base;
use crate::engine::context::Context;
use crate::engine::deadline::Deadline;
use crate::engine::holders::failure_detector::{FailureDetector, LookedAt};
use crate::engine::holders::foreign_lock::Holding;
use crate::engine::live_attempts::LiveAttempts;
use crate::engine::recovery::Recovery;
use crate::engine::store::pages::PAGE;
use crate::engine::store::store_access::{ReadPreference, StoreAccess};
use crate::engine::table::Table;
use crate::engine::table::record_lookup::RecordLookup;
use crate::engine::wait_reason::WaitReason;
use crate::error::{Error, ErrorKind, Result};
use txn_protocol::ids::{AttemptId, CommitVersion, Day};
use txn_protocol::record::State;
use txn_protocol::rules::conflict::{HolderState, Requester};
use txn_store::{Filter, Key};

/// The number of holders that a barrier rolls forward at a time.
///
/// A damaged holder takes up to half a lease, and must not delay the rest.
const AT_ONCE: usize = 16;

/// The committed writes that [`Domain::barrier`](crate::Domain::barrier) could not wait for.
#[derive(Debug, Default)]
#[non_exhaustive]
#[must_use = "searches do not see the writes that the report lists"]
pub struct BarrierReport {
    /// The unapplied writes, in the order of their records.
    ///
    /// The list is empty if searches see every earlier commit.
    pub unapplied: Vec<UnappliedWrite>,
}

/// A committed write that no process can apply.
///
/// An operator must repair the damage first.
#[derive(Debug)]
#[non_exhaustive]
pub struct UnappliedWrite {
    /// The record of the transaction, under the id of the attempt.
    pub record: Key,
    /// The version of the commit, as in
    /// [`Receipt::commit_version`](crate::Receipt::commit_version).
    ///
    /// `None` if the record cannot be read.
    pub commit_version: Option<CommitVersion>,
    /// The fault.
    ///
    /// [`Error::document`] names the document to repair, or the record if the record is damaged.
    /// [`Error::tid`] names the attempt, and the message names the remedy.
    pub error: Error,
}

impl BarrierReport {
    /// Whether every commit before the barrier is applied.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.unapplied.is_empty()
    }

    /// Turns an incomplete barrier into an error.
    ///
    /// # Errors
    /// The error of the first unapplied write, with the number of further ones.
    pub fn into_result(self) -> Result<()> {
        let further = self.unapplied.len().saturating_sub(1);
        match self.unapplied.into_iter().next() {
            None => Ok(()),
            Some(first) if further == 0 => Err(first.error),
            Some(first) => {
                let note = format!("{further} more committed writes are not applied");
                Err(first.error.noting(&note))
            }
        }
    }

    fn add(&mut self, record: &Key, commit_version: Option<CommitVersion>, error: Error) {
        let (record, error) = (record.clone(), error.at(record));
        self.unapplied.push(UnappliedWrite { record, commit_version, error });
    }
}

/// The transactions that a barrier waits for.
#[derive(Default)]
struct Awaited {
    /// The committed transactions that are not finished.
    committed: BTreeSet<AttemptId>,
    /// Why the last roll forward failed, if a retry may succeed.
    hindered: BTreeMap<AttemptId, Error>,
    report: BarrierReport,
}

impl Awaited {
    fn settle(&mut self, tid: AttemptId) {
        self.committed.remove(&tid);
        self.hindered.remove(&tid);
    }

    /// Notes the failures of a roll forward.
    ///
    /// The transaction is settled once only an operator can apply it.
    fn note(
        &mut self,
        record: &Key,
        tid: AttemptId,
        version: Option<CommitVersion>,
        hindrances: Vec<Error>,
    ) {
        let (later, never): (Vec<Error>, Vec<Error>) =
            hindrances.into_iter().partition(|error| error.kind().is_transient_or_unknown());
        if let Some(why) = later.into_iter().next() {
            self.hindered.insert(tid, why);
        } else if !never.is_empty() {
            self.settle(tid);
            for error in never {
                self.report.add(record, version, error.in_transaction(tid));
            }
        }
    }

    /// The error of a barrier that reached its deadline.
    fn late(&self, first: AttemptId) -> Error {
        let mut message = format!(
            "{} committed transactions were not applied before the deadline, this is the first of them",
            self.committed.len()
        );
        if let Some(why) = self.hindered.get(&first) {
            message.push_str(&format!(" ({why})"));
        }
        Error::new(ErrorKind::Conflict, message).in_transaction(first)
    }
}

/// Waits for the apply of all earlier commits.
pub(crate) struct Barrier {
    context: Arc<Context>,
    store: Arc<StoreAccess>,
    table: Arc<Table>,
    live_attempts: Arc<LiveAttempts>,
    detector: Arc<FailureDetector>,
    recovery: Arc<Recovery>,
}

impl Barrier {
    pub(in crate::engine) fn new(
        base: &Base,
        live_attempts: Arc<LiveAttempts>,
        detector: Arc<FailureDetector>,
        recovery: Arc<Recovery>,
    ) -> Self {
        let Base { context, store, table, .. } = base.clone();
        Self { context, store, table, live_attempts, detector, recovery }
    }

    /// See [`Domain::barrier`](crate::Domain::barrier).
    #[tracing::instrument(level = "debug", skip_all, fields(domain = %self.table.domain()))]
    pub(crate) async fn wait(&self, deadline: &Deadline) -> Result<BarrierReport, AttemptError> {
        let (document, ..) = self.table.domain_document(deadline).await?;
        let mut awaited = Awaited::default();
        for (day, partition) in &document.partitions {
            self.find_committed(*day, partition, &mut awaited, deadline).await?;
        }
        self.wait_until_applied(&mut awaited, deadline).await?;
        for name in document.collections.keys() {
            self.store.refresh(name, deadline).await?;
        }
        let mut report = awaited.report;
        report.unapplied.sort_by(|one, other| {
            let by =
                |write: &UnappliedWrite| (write.record.clone(), write.error.document().cloned());
            by(one).cmp(&by(other))
        });
        Ok(report)
    }

    /// Finds the unfinished committed transactions of one day.
    ///
    /// The partition is refreshed first, so the scan finds every acknowledged record.
    async fn find_committed(
        &self,
        day: Day,
        partition: &str,
        awaited: &mut Awaited,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        let open = Filter::any_of(txn_store::fields::STATE, ["committed"]);
        match self.store.refresh(partition, deadline).await {
            // Another process dropped the day, so every transaction of the day was finished.
            Err(AttemptError::Fail(error))
                if error.kind() == ErrorKind::Misconfigured
                    && self.table.domain_document(deadline).await?.0.is_gone(day) =>
            {
                return Ok(());
            }
            refreshed => refreshed?,
        }
        let mut foreign = BTreeSet::new();
        let mut pages = self.store.pages(partition, open, PAGE);
        while let Some(documents) = self.store.next_page(&mut pages, deadline).await? {
            for (key, ..) in documents {
                match key.id.parse() {
                    Ok(tid) => drop(awaited.committed.insert(tid)),
                    Err(_) => drop(foreign.insert(key)),
                }
            }
        }
        for key in foreign {
            let message = "it is no record of a transaction: remove it from the transaction table";
            awaited.report.add(&key, None, Error::damaged(message));
        }
        Ok(())
    }

    /// Waits for the owners. Rolls forward transactions that stay committed for one lease.
    async fn wait_until_applied(
        &self,
        awaited: &mut Awaited,
        deadline: &Deadline,
    ) -> Result<(), AttemptError> {
        let mut backoff = self.context.backoff();
        loop {
            let holdings = self.left_by_their_owners(awaited, deadline).await?;
            let mut holdings = holdings.into_iter();
            loop {
                let some: Vec<Holding> = holdings.by_ref().take(AT_ONCE).collect();
                if some.is_empty() {
                    break;
                }
                let tries =
                    some.into_iter().map(|holding| self.roll_left_forward(holding, deadline));
                for (tid, version, hindrances) in futures::future::join_all(tries).await {
                    awaited.note(&self.table.record_key(tid), tid, version, hindrances);
                }
            }
            let Some(first) = awaited.committed.first().copied() else { return Ok(()) };
            let reason = WaitReason::Changing(self.table.record_key(first));
            let paused = self.context.pause(deadline, &mut backoff, reason).await;
            paused.map_err(|_| awaited.late(first))?;
        }
    }

    /// Reads the records of the awaited transactions. Returns the ones to roll forward.
    async fn left_by_their_owners(
        &self,
        awaited: &mut Awaited,
        deadline: &Deadline,
    ) -> Result<Vec<Holding>, AttemptError> {
        // An owner in this process still applies its transaction.
        let is_away = |tid: &AttemptId| !self.live_attempts.is_live(*tid);
        let away: BTreeSet<AttemptId> = awaited.committed.iter().copied().filter(is_away).collect();
        let asked = self.context.now();
        let records = self.readable_records(&away, awaited, deadline).await?;
        let at = LookedAt { asked, answered: self.context.now() };
        let mut left = Vec::new();
        for (tid, found) in records {
            if found.state() != HolderState::Record(State::Committed) {
                awaited.settle(tid);
                self.detector.forget_committed(tid);
                continue;
            }
            let (key, lease) =
                (self.table.record_key(tid), self.context.config.lease_of(tid.attempt()));
            let is_dead = self.detector.note_sign(tid, &key, found.version(), lease, at);
            // A transaction that finds a damaged document touches the record each time. So a
            // committed record may change forever, and its changes are no sign of life of the
            // owner.
            if self.detector.note_committed(tid, lease, at) || is_dead {
                left.push(Holding {
                    holder: tid,
                    locks: Vec::new(),
                    found,
                    at,
                    includes_record: true,
                });
            }
        }
        Ok(left)
    }

    /// Returns the readable records, and adds the unreadable ones to the report.
    async fn readable_records(
        &self,
        tids: &BTreeSet<AttemptId>,
        awaited: &mut Awaited,
        deadline: &Deadline,
    ) -> Result<BTreeMap<AttemptId, RecordLookup>, AttemptError> {
        match self.table.records(tids, ReadPreference::Primary, deadline).await {
            Err(AttemptError::Fail(error)) if !error.kind().is_transient_or_unknown() => {}
            found => return found,
        }
        // A record cannot be read: single reads show which.
        let mut readable = BTreeMap::new();
        for tid in tids {
            match self.table.record_of(*tid, ReadPreference::Primary, deadline).await {
                Ok(found) => drop(readable.insert(*tid, found)),
                Err(AttemptError::Fail(error)) if !error.kind().is_transient_or_unknown() => {
                    let error = error.in_transaction(*tid);
                    awaited.report.add(&self.table.record_key(*tid), None, error);
                    awaited.settle(*tid);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(readable)
    }

    /// Rolls one transaction forward, and returns the failures of its participants.
    async fn roll_left_forward(
        &self,
        holding: Holding,
        deadline: &Deadline,
    ) -> (AttemptId, Option<CommitVersion>, Vec<Error>) {
        let tid = holding.holder;
        let version = holding.found.record.as_ref().and_then(|record| record.commit_version);
        // A transaction with blocked documents must not use up the time of the rest.
        let soon = deadline.at_most(self.context.now() + self.context.config.lease);
        let resolved =
            Box::pin(self.recovery.resolve_holder(Requester::NonPreempting, holding, &soon)).await;
        let hindrances = match resolved {
            Ok(resolved) => resolved.into_values().filter_map(Result::err).collect(),
            Err(error) => vec![error.into_error()],
        };
        (tid, version, hindrances)
    }
}
