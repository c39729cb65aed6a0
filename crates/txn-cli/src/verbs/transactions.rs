//! Verbs that list transactions, locks and the story of a document.

use txn_cli::{table, time_of};
use txn_core::admin::{DocumentReport, Fault, TransactionReport, Waiter};
use txn_core::{AttemptId, Domain};
use txn_serve::operator::{
    self, TransactionFilter, TransactionRow, document_json, labelled, next_step_of_document,
    next_step_of_transaction, process_of, transaction_json,
};

use super::hints::{cut, time};
use crate::answer::{Answer, Exit, Failure};

pub(super) async fn list(
    domain: &Domain,
    which: &TransactionFilter,
    limit: usize,
) -> Result<Answer, Failure> {
    let list = operator::transactions(domain, which, limit).await?;
    let mut text = match list.transactions.is_empty() {
        true => "No transaction is open.".to_owned(),
        false => format!("{}\nNext: `txn show TID`.", table_of(&list.transactions)),
    };
    text += &cut(list.truncated, limit);
    text += &of_faults(&list.faults);
    Ok(Answer::new(exit_of(&list.faults), text, &list))
}

fn table_of(rows: &[TransactionRow]) -> impl std::fmt::Display {
    let header = ["tid", "state", "age", "heartbeat", "process", "label", "documents", "locks"];
    let mut table = table(header, &[2, 3, 6, 7]);
    for row in rows {
        table.add_row([
            row.tid.to_string(),
            row.state.to_string() + if row.overdue { " (overdue)" } else { "" },
            time(row.age_ms),
            row.heartbeat_ms.map(time).unwrap_or_default(),
            process_of(row.tid, row.process.as_deref(), row.application.as_deref()),
            row.label.clone().unwrap_or_default(),
            row.participants.to_string(),
            row.locks.to_string(),
        ]);
    }
    table
}

pub(super) async fn show(domain: &Domain, tid: AttemptId, limit: usize) -> Result<Answer, Failure> {
    let report = domain.admin().transaction(tid, limit).await?;
    let json = transaction_json(&report);
    Ok(Answer::new(exit_of(&report.faults), shown(&report, limit), json))
}

fn shown(report: &TransactionReport, limit: usize) -> String {
    let TransactionReport { tid, state, attempt, verdict, why, .. } = report;
    let mut text = format!(
        "{}: {state}, attempt {attempt}, begun {} ago at {}\nVerdict: {}: {why}\n",
        labelled(*tid, report.label.as_deref()),
        time(report.age_ms),
        time_of(report.started_ms),
        verdict.as_str(),
    );
    if let Some(record) = &report.record {
        let by = process_of(*tid, Some(&record.process), record.application.as_deref());
        text += &format!("Process: {by}; record changed at {}\n", time_of(record.modified_ms));
        if let Some(version) = record.commit_version {
            text += &format!("Commit version: {version}\n");
        }
    }
    if !report.participants.is_empty() {
        let mut table = table(["document", "operation", "now", "held by"], &[]);
        for one in &report.participants {
            table.add_row([
                one.document.to_string(),
                format!("{:?}", one.op).to_lowercase(),
                one.state.as_str().to_owned(),
                one.holder.map(|holder| holder.to_string()).unwrap_or_default(),
            ]);
        }
        text += &format!("{table}\n");
    }
    for document in report.locks.iter().filter(|_| report.participants.is_empty()) {
        text += &format!("locks {document}\n");
    }
    text += &format!("Next: {}.", next_step_of_transaction(*verdict, *tid));
    text + &cut(report.truncated, limit) + &of_faults(&report.faults)
}

pub(super) async fn why(
    domain: &Domain,
    collection: &str,
    id: &str,
    routing: Option<&str>,
) -> Result<Answer, Failure> {
    let report = domain.admin().document(collection, id, routing).await?;
    let waiters = operator::waiters_of(domain, &report.document).await?;
    let next = next_step_of_document(&report);
    let text = story(&report) + &of_waiters(&waiters) + &format!("Next: {next}.");
    Ok(Answer::new(Exit::Well, text, document_json(&report, &waiters)))
}

fn story(report: &DocumentReport) -> String {
    let DocumentReport { document, exists, placeholder, commit, earlier, lock, .. } = report;
    let mut text = match (exists, placeholder) {
        (true, _) => format!("{document} exists.\n"),
        (false, true) => format!("{document} does not exist yet: a transaction is inserting it.\n"),
        (false, false) => format!("{document} does not exist.\n"),
    };
    match commit {
        Some(last) => {
            let at = time_of(last.time_ms);
            text += &format!("Last commit: {} at {at}, process {}\n", last.version, last.process);
        }
        None if *exists => {
            text += "No transaction has written it: it is content of a plain client.\n";
        }
        None => {}
    }
    for one in earlier.iter().rev() {
        let at = time_of(one.time_ms);
        text += &format!("Earlier commit: {} at {at}, process {}\n", one.version, one.process);
    }
    match lock {
        None => text += "No lock.\n",
        Some(lock) => {
            text += &format!(
                "Locked by {} ({}, begun {} ago, {}): the lock is {}.\n",
                labelled(lock.holder, lock.label.as_deref()),
                lock.state,
                time(lock.age_ms),
                process_of(lock.holder, lock.process.as_deref(), lock.application.as_deref()),
                lock.standing.as_str(),
            );
        }
    }
    text
}

/// The lines of transactions that wait for one document.
fn of_waiters(waiters: &[Waiter]) -> String {
    let line = |Waiter { wait, process, seen_ms, .. }: &Waiter| {
        let (waited, seen) = (time(wait.waited_ms), time(*seen_ms));
        let waiting = labelled(wait.tid, wait.label.as_deref());
        format!("Waiting: {waiting} in {process}, for {waited}, seen {seen} ago\n")
    };
    waiters.iter().map(line).collect()
}

/// Lists the transactions that wait for locks, the longest first.
pub(super) async fn waiters(domain: &Domain, limit: usize) -> Result<Answer, Failure> {
    let list = operator::waiters(domain, limit).await?;
    let mut text = match list.waiters.waiters.is_empty() {
        true => "No wait for a lock is recorded.".to_owned(),
        false => {
            let header = [
                "waiting",
                "label",
                "process",
                "waited",
                "seen",
                "document",
                "held by",
                "its label",
            ];
            let mut table = table(header, &[3, 4]);
            for Waiter { wait, number, process, seen_ms, .. } in &list.waiters.waiters {
                table.add_row([
                    wait.tid.to_string(),
                    wait.label.as_deref().unwrap_or_default().to_owned(),
                    format!("{process} ({number})"),
                    time(wait.waited_ms),
                    format!("{} ago", time(*seen_ms)),
                    format!("{}/{}", wait.collection, wait.id),
                    wait.holder.to_string(),
                    wait.holder_label.as_deref().unwrap_or_default().to_owned(),
                ]);
            }
            table.to_string()
        }
    };
    text += &format!("\nNext: {}.", list.next);
    text += &cut(list.waiters.truncated, limit);
    Ok(Answer::new(Exit::Well, text, &list))
}

pub(super) async fn locks(domain: &Domain, limit: usize) -> Result<Answer, Failure> {
    let report = domain.admin().locks(limit).await?;
    let mut text = match report.locks.is_empty() {
        true => "No document is locked.".to_owned(),
        false => {
            let header = ["document", "held by", "state", "lock", "age", "process", "label"];
            let mut table = table(header, &[4]);
            for lock in &report.locks {
                table.add_row([
                    lock.document.to_string(),
                    lock.holder.to_string(),
                    lock.state.to_string(),
                    lock.standing.as_str().to_owned(),
                    time(lock.age_ms),
                    process_of(lock.holder, lock.process.as_deref(), lock.application.as_deref()),
                    lock.label.clone().unwrap_or_default(),
                ]);
            }
            format!(
                "{table}\nNext: `txn show TID`, `txn why COLLECTION ID`, or `txn locks --waiting`."
            )
        }
    };
    text += &cut(report.truncated, limit);
    let records = report.locks.iter().filter_map(|lock| lock.unreadable.clone());
    let mut faults: Vec<Fault> = report.faults.iter().cloned().chain(records).collect();
    faults.sort();
    faults.dedup();
    text += &of_faults(&faults);
    Ok(Answer::new(exit_of(&faults), text, &report))
}

/// The lines of faults.
pub(super) fn of_faults(faults: &[Fault]) -> String {
    let line = |fault: &Fault| {
        let what = if fault.damaged { "damaged" } else { "could not be read" };
        format!("\n{what}: {}: {}", fault.subject, fault.message)
    };
    faults.iter().map(line).collect()
}

/// The exit of a list with faults.
///
/// Damage is not well, and an unreadable part hides the truth.
pub(super) fn exit_of(faults: &[Fault]) -> Exit {
    match faults {
        [] => Exit::Well,
        faults if faults.iter().any(|fault| fault.damaged) => Exit::NotWell,
        _ => Exit::CouldNotFindOut,
    }
}
