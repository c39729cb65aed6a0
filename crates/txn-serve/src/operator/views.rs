//! The views, and the next step that each of them suggests.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};
use txn_core::admin::{
    DocumentLock, DocumentName, DocumentReport, Fault, LockStanding, OpenTransaction,
    ProcessReport, TransactionReport, TransactionState, Verdict, Waiter, Waiters,
};
use txn_core::{AttemptId, Domain, Result};

use super::contention::next_step_of_waits;

/// A transaction with an open record, or a lock holder without one.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TransactionRow {
    /// The attempt.
    pub tid: AttemptId,
    /// The state of the record.
    pub state: TransactionState,
    /// The time since the beginning, in milliseconds.
    pub age_ms: u64,
    /// The time since the last heartbeat, in milliseconds.
    pub heartbeat_ms: Option<u64>,
    /// Whether the owner was not heard of within one lease.
    pub overdue: bool,
    /// The process; `None` without a record.
    pub process: Option<String>,
    /// The application of the process.
    pub application: Option<String>,
    /// The label of the transaction. A group has the labels of its members, joined by `+`.
    pub label: Option<String>,
    /// The number of documents in the record.
    pub participants: usize,
    /// The number of documents that the transaction locks.
    pub locks: usize,
}

impl From<OpenTransaction> for TransactionRow {
    fn from(open: OpenTransaction) -> Self {
        Self {
            tid: open.tid,
            state: open.state,
            age_ms: open.age_ms,
            heartbeat_ms: open.heartbeat_ms,
            overdue: open.overdue,
            process: Some(open.process),
            application: open.application,
            label: open.label,
            participants: open.participants,
            locks: 0,
        }
    }
}

impl TransactionRow {
    /// A holder without a readable record.
    ///
    /// The record does not exist, or cannot be read.
    fn of_lock(lock: &DocumentLock) -> Self {
        Self {
            tid: lock.holder,
            state: lock.state,
            age_ms: lock.age_ms,
            heartbeat_ms: None,
            overdue: lock.overdue,
            process: None,
            application: None,
            label: lock.label.clone(),
            participants: 0,
            locks: 0,
        }
    }

    /// Whether the transaction has the label, alone or in a group.
    fn has_label(&self, label: &str) -> bool {
        let own = self.label.as_deref();
        own.is_some_and(|own| own == label || own.split('+').any(|member| member == label))
    }
}

/// The open transactions that a list shows. The default shows all of them.
#[derive(Clone, Debug, Default)]
pub struct TransactionFilter {
    /// Only this state.
    pub state: Option<TransactionState>,
    /// The least age, in seconds.
    pub older: Option<u64>,
    /// The label of the transaction, or of one member of a group.
    pub label: Option<String>,
}

impl TransactionFilter {
    fn has(&self, row: &TransactionRow) -> bool {
        let least_ms = self.older.unwrap_or(0).saturating_mul(1_000);
        row.age_ms >= least_ms
            && self.state.is_none_or(|state| row.state == state)
            && self.label.as_deref().is_none_or(|label| row.has_label(label))
    }
}

/// The open transactions, oldest first.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TransactionList {
    /// One row per open transaction, up to the limit.
    pub transactions: Vec<TransactionRow>,
    /// Whether there are more.
    pub truncated: bool,
    /// The parts of the domain that could not be read.
    pub faults: Vec<Fault>,
}

/// Lists the open transactions, and the holders of locks without a record. Changes nothing.
///
/// # Errors
/// The errors of the store for the domain document.
pub async fn transactions(
    domain: &Domain,
    which: &TransactionFilter,
    limit: usize,
) -> Result<TransactionList> {
    let open = domain.admin().transactions(limit).await?;
    let locks = domain.admin().locks(limit).await?;
    let records: Vec<Fault> =
        locks.locks.iter().filter_map(|lock| lock.unreadable.clone()).collect();
    let mut rows = rows_of(open.transactions, &locks.locks);
    rows.retain(|row| which.has(row));
    let truncated = open.truncated || locks.truncated || rows.len() > limit;
    rows.truncate(limit);
    let mut faults: Vec<Fault> =
        open.faults.into_iter().chain(locks.faults).chain(records).collect();
    faults.sort();
    faults.dedup();
    Ok(TransactionList { transactions: rows, truncated, faults })
}

/// The rows of open records, and of holders of locks without one. The oldest is first.
pub(crate) fn rows_of(open: Vec<OpenTransaction>, locks: &[DocumentLock]) -> Vec<TransactionRow> {
    let rows = open.into_iter().map(|open| (open.tid, TransactionRow::from(open)));
    let mut rows: BTreeMap<AttemptId, TransactionRow> = rows.collect();
    for lock in locks.iter().filter(|lock| lock.standing != LockStanding::Void) {
        let row = rows.entry(lock.holder).or_insert_with(|| TransactionRow::of_lock(lock));
        row.locks += 1;
    }
    rows.into_values().collect()
}

/// The processes of a domain, and the versions of their libraries.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ProcessList {
    /// The processes, oldest first.
    pub processes: Vec<ProcessReport>,
    /// The versions of the library, each once.
    pub libraries: Vec<String>,
    /// Whether there are more processes.
    pub truncated: bool,
}

impl ProcessList {
    /// The number of processes that were not heard of for a while.
    #[must_use]
    pub fn silent(&self) -> usize {
        self.processes.iter().filter(|report| report.silent).count()
    }
}

/// Lists the processes that use the domain. Changes nothing.
///
/// # Errors
/// The errors of the store for the registry.
pub async fn processes(domain: &Domain, limit: usize) -> Result<ProcessList> {
    let mut processes = domain.admin().processes().await?;
    let mut libraries: Vec<String> =
        processes.iter().map(|report| report.entry.library.clone()).collect();
    libraries.sort_unstable();
    libraries.dedup();
    let truncated = processes.len() > limit;
    processes.truncate(limit);
    Ok(ProcessList { processes, libraries, truncated })
}

/// The waits for locks that have not ended, with the next step.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct WaiterList {
    /// The waits.
    #[serde(flatten)]
    pub waiters: Waiters,
    /// The next step of the operator.
    pub next: String,
}

/// Lists the waits for locks that have not ended, the longest first. Changes nothing.
///
/// # Errors
/// The errors of the store for the registry.
pub async fn waiters(domain: &Domain, limit: usize) -> Result<WaiterList> {
    let waiters = domain.admin().waiters(limit).await?;
    let next = match waiters.waiters.is_empty() {
        true => next_step_of_waits(false, &waiters.processes),
        false => "`txn show TID` for a holder; to end one by force: `txn abort TID`".to_owned(),
    };
    Ok(WaiterList { waiters, next })
}

/// Whether the transaction has a record or a lock. Without a record all collections are searched.
///
/// # Errors
/// The errors of the store, and those of an unreadable record.
pub async fn has_traces(domain: &Domain, tid: AttemptId) -> Result<bool> {
    let admin = domain.admin();
    let recorded = admin.abort(tid, "", true).await?.before != TransactionState::NoRecord;
    Ok(recorded || admin.transaction(tid, 1).await?.verdict != Verdict::Unknown)
}

/// The report of a transaction as JSON, with the next step.
#[must_use]
pub fn transaction_json(report: &TransactionReport) -> Value {
    // All keys are texts, so that each report can be written.
    let mut json = serde_json::to_value(report).unwrap_or_default();
    json["next"] = json!(next_step_of_transaction(report.verdict, report.tid));
    json
}

/// Returns the present waits for a document's lock, longest first. Changes nothing.
///
/// # Errors
/// The errors of the store for the registry.
pub async fn waiters_of(domain: &Domain, document: &DocumentName) -> Result<Vec<Waiter>> {
    let mut waiters = domain.admin().waiters(usize::MAX).await?.waiters;
    waiters.retain(|waiter| {
        let wait = &waiter.wait;
        *wait.collection == *document.collection
            && *wait.id == *document.id
            && wait.routing.as_deref() == document.routing.as_deref()
    });
    Ok(waiters)
}

/// The report of a document, as JSON.
///
/// The JSON includes the waiters and the next step.
#[must_use]
pub fn document_json(report: &DocumentReport, waiters: &[Waiter]) -> Value {
    let mut json = serde_json::to_value(report).unwrap_or_default();
    json["waiters"] = json!(waiters);
    json["next"] = json!(next_step_of_document(report));
    json
}

/// The next step after a verdict.
#[must_use]
pub fn next_step_of_transaction(verdict: Verdict, tid: impl std::fmt::Display) -> String {
    match verdict {
        Verdict::Running => {
            format!("nothing: the owner may still commit; to end it by force: `txn abort {tid}`")
        }
        Verdict::Overdue => {
            format!("`txn recover`, or `txn abort {tid}` to free its documents at once")
        }
        Verdict::Unapplied | Verdict::Unmarked => {
            "nothing, or `txn recover`: any process rolls it forward after one lease".to_owned()
        }
        Verdict::Damaged => {
            "repair the named documents as in docs/failures.md, then `txn recover`".to_owned()
        }
        Verdict::Finished | Verdict::Aborted | Verdict::Forgotten => "nothing".to_owned(),
        Verdict::Unknown => {
            "check the tid; a commit of one document without a record cannot be found by its tid"
                .to_owned()
        }
        _ => "see docs/failures.md".to_owned(),
    }
}

/// The next step after the report of a document.
#[must_use]
pub fn next_step_of_document(report: &DocumentReport) -> String {
    match &report.lock {
        None => "nothing: the document is free".to_owned(),
        Some(lock) => match lock.standing {
            LockStanding::Void => {
                "nothing: the next transaction overwrites the lock; `txn recover` removes it"
                    .to_owned()
            }
            LockStanding::Unapplied => {
                format!("wait for its owner, or `txn recover`; details: `txn show {}`", lock.holder)
            }
            _ => format!(
                "`txn show {0}`; if its owner is dead: `txn recover`, or `txn abort {0}`",
                lock.holder
            ),
        },
    }
}
