//! Open transactions, and one transaction in full.

use std::collections::BTreeMap;

use super::Admin;
use super::report::{
    DocumentName, OpenTransaction, OpenTransactions, Overview, ParticipantReport, ParticipantState,
    PartitionName, RecordReport, TransactionReport, TransactionState, Verdict,
};
use super::scan::{
    FaultList, Holder, Smallest, deleted_since, domain_document, is_overdue_without_record,
    lease_ms, scan, seen, since, started_ms,
};
use super::signals::process_of;
use crate::engine::Engine;
use crate::engine::attempt_error::AttemptError;
use crate::engine::store::store_access::ReadPreference;
use crate::engine::table::format::read_record;
use crate::engine::table::retention::open_records;
use crate::error::Result;
use txn_protocol::document::View;
use txn_protocol::ids::AttemptId;
use txn_protocol::record::{Participant, Record};
use txn_protocol::rules::apply::{Applying, Committed, applying, is_locked_by};
use txn_store::{Filter, Key, fields};

/// The number of documents in one read.
const READS: usize = 500;

impl Admin<'_> {
    /// Returns the parts of the domain. Changes nothing.
    ///
    /// # Errors
    /// The errors of the store for the domain document.
    pub async fn overview(self) -> Result<Overview> {
        let engine = self.engine;
        let document = domain_document(engine).await?;
        let partitions = document.partitions.into_iter();
        Ok(Overview {
            domain: engine.table.domain().to_string(),
            partitions: partitions.map(|(day, name)| PartitionName { day, name }).collect(),
            dropped_through: document.dropped_through,
            collections: document.collections.into_keys().collect(),
            now_ms: engine.time.unix_millis(),
            clock_ahead_ms: engine.time.clock_ahead_ms(),
        })
    }

    /// Lists the transactions with an open record, oldest first. Changes nothing.
    ///
    /// The list has at most `limit` transactions, and at most 10,000. The scan reads all open
    /// records. A transaction that has written no record is found by its locks only
    /// ([`Admin::locks`]).
    ///
    /// # Errors
    /// The errors of the store for the domain document. A partition that cannot be read is a fault
    /// of the answer.
    pub async fn transactions(self, limit: usize) -> Result<OpenTransactions> {
        let engine = self.engine;
        let document = domain_document(engine).await?;
        let mut oldest = Smallest::new(limit);
        let mut faults = FaultList::new(limit);
        for name in document.partitions.values() {
            let visit = |key: Key, _, source: txn_store::Source| match read_record(&key, &source) {
                // A scan is stale, and may show a record that is finished since.
                Ok(record) if record.is_open() => oldest.add(record.tid, open(engine, &record)),
                Ok(_) => {}
                Err(error) => faults.note(&key, &error),
            };
            if let Err(error) = scan(engine, name, open_records(), visit).await {
                faults.note(name, &error);
            }
        }
        let truncated = oldest.is_truncated();
        let transactions = oldest.into_entries().into_values().collect();
        Ok(OpenTransactions { transactions, truncated, faults: faults.into_vec() })
    }

    /// Compares all participants of a transaction with its record. Changes nothing.
    ///
    /// The list is empty without a record. Unlike [`Admin::transaction`], the call does not search
    /// the collections for further locks. A participant that cannot be read is
    /// [`ParticipantState::Unreadable`].
    ///
    /// # Errors
    /// As [`Admin::transaction`].
    pub async fn participants(self, tid: AttemptId) -> Result<Vec<ParticipantReport>> {
        match holder(self.engine, tid).await? {
            (_, Some(record)) => {
                Ok(participants(self.engine, &record, &mut FaultList::new(0)).await)
            }
            (_, None) => Ok(Vec::new()),
        }
    }

    /// Reports one transaction: its record, its documents, and a verdict. Changes nothing.
    ///
    /// The answer lists at most `limit` participants and locks. The read of the record asks the
    /// primary. A verdict rests on reads, so that the state may have changed since.
    ///
    /// ```
    /// # use txn_core::{AttemptId, Domain, Error};
    /// # async fn tell(domain: &Domain, tid: AttemptId) -> Result<(), Error> {
    /// let report = domain.admin().transaction(tid, 100).await?;
    /// println!("{report:?}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) if the record cannot be read.
    /// - The errors of the store.
    pub async fn transaction(self, tid: AttemptId, limit: usize) -> Result<TransactionReport> {
        let engine = self.engine;
        let (state, record) = holder(engine, tid).await?;
        let mut faults = FaultList::new(limit);
        // The verdict rests on all participants.
        let mut participants = match &record {
            Some(record) => participants(engine, record, &mut faults).await,
            None => Vec::new(),
        };
        let total = participants.len();
        let mut locks = Smallest::new(limit);
        for name in domain_document(engine).await?.collections.keys() {
            let held = Filter::any_of(fields::TRANSACTION_TID, [tid.to_string()]);
            let visit = |key: Key, _, _| locks.add(DocumentName::from(&key), ());
            if let Err(error) = scan(engine, name, held, visit).await {
                faults.note(name, &error);
            }
        }
        let truncated = locks.is_truncated() || total > limit;
        let locks: Vec<DocumentName> = locks.into_entries().into_keys().collect();
        let (verdict, why) =
            verdict(engine, tid, state, record.as_deref(), &participants, locks.len());
        participants.truncate(limit);
        let registered = match record {
            Some(_) => Vec::new(),
            None => self.processes_or_fault(&mut faults).await,
        };
        let registered = process_of(&registered, tid.process());
        let (process, application) = match (&record, registered) {
            (Some(record), _) => (Some(record.coordinator.clone()), record.application.clone()),
            (None, Some((process, application))) => {
                (Some(process), application.map(ToOwned::to_owned))
            }
            (None, None) => (None, None),
        };
        let started_ms = started_ms(tid);
        Ok(TransactionReport {
            tid,
            state,
            attempt: tid.attempt(),
            started_ms,
            age_ms: since(engine, started_ms),
            label: record.as_ref().and_then(|it| it.label.as_deref().map(ToOwned::to_owned)),
            process,
            application,
            record: record.as_deref().map(record_report),
            participants,
            participants_total: total,
            locks,
            truncated,
            verdict,
            why,
            faults: faults.into_vec(),
        })
    }
}

/// Reads the record of a transaction from the primary.
async fn holder(engine: &Engine, tid: AttemptId) -> Result<Holder> {
    let deadline = engine.context.deadline(engine.context.config.timeout);
    let found = engine.table.record_of(tid, ReadPreference::Primary, &deadline).await;
    let found = found.map_err(AttemptError::into_error)?;
    Ok((found.state().into(), found.record))
}

fn open(engine: &Engine, record: &Record) -> OpenTransaction {
    let unchanged_ms = since(engine, record.modified_at);
    OpenTransaction {
        tid: record.tid,
        state: record.state.into(),
        attempt: record.tid.attempt(),
        age_ms: since(engine, started_ms(record.tid)),
        unchanged_ms,
        heartbeat_ms: record.heartbeat_at.map(|at| since(engine, at)),
        overdue: unchanged_ms > lease_ms(engine, record.tid),
        process: record.coordinator.clone(),
        application: record.application.clone(),
        label: record.label.as_deref().map(ToOwned::to_owned),
        participants: record.participants.len(),
    }
}

fn record_report(record: &Record) -> RecordReport {
    let aborted = record.aborted.as_ref();
    RecordReport {
        commit_version: record.commit_version,
        process: record.coordinator.clone(),
        application: record.application.clone(),
        aborted_by: aborted.map(|aborted| aborted.by.clone()),
        aborted_because: aborted.map(|aborted| aborted.why.clone()),
        created_ms: record.created_at,
        heartbeat_ms: record.heartbeat_at,
        modified_ms: record.modified_at,
        metadata_bytes: record.metadata.as_ref().map_or(0, String::len),
    }
}

/// Reads the participants once, and compares each with the record.
async fn participants(
    engine: &Engine,
    record: &Record,
    faults: &mut FaultList,
) -> Vec<ParticipantReport> {
    let mut reports: Vec<ParticipantReport> = Vec::new();
    let mut absent: BTreeMap<Key, usize> = BTreeMap::new();
    for chunk in record.participants.chunks(READS) {
        let keys: Vec<Key> = chunk.iter().map(Participant::key).collect();
        let looks = engine.store.look_at(&keys, ReadPreference::Primary).await;
        for ((participant, key), look) in chunk.iter().zip(&keys).zip(looks) {
            let view = seen(key, look);
            if let Err(error) = &view {
                faults.note(key, error);
            }
            let stored = view.as_ref().ok().and_then(|view| match view {
                View::Present { stored, .. } => Some(stored),
                View::Absent => None,
            });
            let state = match &view {
                Ok(view) => state_of(engine, record, participant, view),
                Err(_) => ParticipantState::Unreadable,
            };
            if state == ParticipantState::Missing {
                absent.insert(key.clone(), reports.len());
            }
            reports.push(ParticipantReport {
                document: DocumentName::from(key),
                op: participant.op,
                state,
                holder: stored.and_then(|stored| stored.lock),
                commit_version: stored.and_then(|stored| stored.commit_version),
            });
        }
    }
    let commits = record.commit_version.into_iter();
    let commits = commits.flat_map(|commit| absent.keys().map(move |key| (key, commit))).collect();
    for key in deleted_since(engine, &commits, faults).await.unwrap_or_default() {
        if let Some(report) = absent.get(&key).and_then(|index| reports.get_mut(*index)) {
            report.state = ParticipantState::DeletedSince;
        }
    }
    reports
}

/// The state of a participant. The next step of an apply decides the state.
fn state_of(
    engine: &Engine,
    record: &Record,
    participant: &Participant,
    view: &View,
) -> ParticipantState {
    let Some(commit) = record.commit_version.filter(|_| record.state.is_committed()) else {
        return match is_locked_by(&engine.context.rules, participant, record.tid, view) {
            true => ParticipantState::Locked,
            false => ParticipantState::Untouched,
        };
    };
    let applied = record.state == txn_protocol::record::State::Finished;
    // Without the identity of the collection, a missing document counts as its own.
    let committed = Committed { tid: record.tid, commit, applied, elsewhere: false };
    match applying(&engine.context.rules, committed, participant, None, view) {
        Applying::Write(_)
        | Applying::Delete(_)
        | Applying::Unlock(_)
        | Applying::RemovePlaceholder(_) => ParticipantState::Locked,
        Applying::Touch(_) | Applying::ProveAbsence | Applying::Done => ParticipantState::Applied,
        Applying::Overtaken(_) | Applying::PerhapsOvertaken(_) => ParticipantState::Overtaken,
        Applying::Held(_) => ParticipantState::HeldByAnother,
        Applying::Unclear(None) => ParticipantState::Missing,
        Applying::Unclear(Some(_)) => ParticipantState::Unclear,
        Applying::Elsewhere => ParticipantState::CollectionMadeAgain,
        Applying::Damaged => ParticipantState::Damaged,
    }
}

/// The verdict on a committed transaction, and its reason.
fn verdict_on_commit(participants: &[ParticipantReport]) -> (Verdict, String) {
    let count = |is: &dyn Fn(ParticipantState) -> bool| {
        participants.iter().filter(|participant| is(participant.state)).count()
    };
    let broken = count(&ParticipantState::needs_operator);
    let open = count(&|state| !state.is_applied());
    let of = participants.len();
    match (broken, open) {
        (0, 0) => {
            let why = format!("all {of} participants are applied; the mark is missing");
            (Verdict::Unmarked, why)
        }
        (0, _) => {
            let why = format!("{open} of {of} participants are not applied");
            (Verdict::Unapplied, why)
        }
        _ => {
            let why = format!("{broken} of {of} participants need a repair by an operator");
            (Verdict::Damaged, why)
        }
    }
}

/// The verdict on a transaction, and its reason.
fn verdict(
    engine: &Engine,
    tid: AttemptId,
    state: TransactionState,
    record: Option<&Record>,
    participants: &[ParticipantReport],
    locks: usize,
) -> (Verdict, String) {
    let lease = lease_ms(engine, tid);
    let unchanged = record.map_or(0, |record| since(engine, record.modified_at));
    match state {
        TransactionState::NoRecord if locks == 0 => {
            let why = "no record and no lock: the transaction has not written yet, never wrote, or \
                       committed one document without a record";
            (Verdict::Unknown, why.to_owned())
        }
        TransactionState::NoRecord => {
            let (age, attempt) = (since(engine, started_ms(tid)), tid.attempt());
            let overdue = is_overdue_without_record(engine, tid);
            let mut why =
                format!("no record, {locks} locks, begun {age} ms ago; the lease is {lease} ms");
            if attempt > 0 {
                why += &format!("; attempt {attempt} of it began at an unknown time");
            }
            (if overdue { Verdict::Overdue } else { Verdict::Running }, why)
        }
        TransactionState::Pending => {
            let why = format!("last heartbeat {unchanged} ms ago; the lease is {lease} ms");
            (if unchanged > lease { Verdict::Overdue } else { Verdict::Running }, why)
        }
        TransactionState::Committed => verdict_on_commit(participants),
        TransactionState::Finished => {
            (Verdict::Finished, "committed, and applied to all participants".to_owned())
        }
        TransactionState::Aborted => {
            let aborted = record.and_then(|record| record.aborted.as_ref());
            let why = aborted.map_or_else(
                || "aborted".to_owned(),
                |aborted| format!("aborted by {}: {}", aborted.by, aborted.why),
            );
            (Verdict::Aborted, why)
        }
        // A report of one transaction fails if its record cannot be read.
        TransactionState::Unreadable => {
            (Verdict::Unknown, "the record could not be read".to_owned())
        }
        TransactionState::Forgotten => {
            let why = "the day of the transaction was dropped after its retention";
            (Verdict::Forgotten, why.to_owned())
        }
    }
}
