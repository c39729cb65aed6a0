//! Pages about transactions.

use maud::{Markup, html};
use txn_core::AttemptId;
use txn_core::admin::{ParticipantReport, TransactionReport, TransactionState, Verdict};

use super::domain::waits_for_operator;
use super::parts::{
    age, badge, cut, document, fact, faults, process, prose, query, table, text, time, transaction,
};
use crate::asked::Asked;
use crate::backend::Backend;
use crate::http::parameters::Parameters;
use crate::http::problem::{Code, Problem};
use crate::operator::answers::{filter, take_limit};
use crate::operator::{
    Severity, TransactionRow, look, next_step_of_transaction, rows_of, stall_ms, transactions,
};

/// The states that the filter offers.
const STATES: [(&str, &str); 4] = [
    ("", "any"),
    ("no-record", "no record"),
    ("pending", "pending"),
    ("committed", "committed, not applied"),
];

/// Lists the open transactions.
pub(super) async fn list(backend: &Backend, asked: &mut Asked) -> Result<Markup, Problem> {
    let limit = take_limit(asked)?;
    // A form sends its empty fields, too.
    asked.parameters.drop_empty();
    let state = asked.parameters.peek("state").unwrap_or_default().to_owned();
    let which = filter(asked)?;
    asked.finish_parameters()?;
    let list = transactions(&backend.domain, &which, limit).await?;
    Ok(html! {
        (faults(&list.faults))
        form.filter method="get" action="/_console/transactions" role="search" {
            label { "State "
                select name="state" {
                    @for (value, name) in STATES {
                        option value=(value) selected[value == state] { (name) }
                    }
                }
            }
            label { "Older than, in seconds "
                input type="number" name="older" min="0" value=[which.older];
            }
            label { "Label " input type="text" name="label" value=[which.label.as_deref()]; }
            button type="submit" { "Filter" }
        }
        @if list.transactions.is_empty() { p.note { "No such transaction is open." } }
        @else { (rows("Open transactions", &list.transactions)) }
        (cut(list.truncated, limit))
        form.filter method="get" action="/_console/transaction" role="search" {
            label { "Story of the transaction with the tid "
                input type="text" name="tid" required size="36" autocomplete="off";
            }
            button type="submit" { "Show" }
        }
    })
}

/// The rows of transactions.
pub(super) fn rows(name: &str, rows: &[TransactionRow]) -> Markup {
    let row = |row: &TransactionRow| {
        html! {
            td { (transaction(row.tid)) }
            td { (state(row.state)) @if row.overdue { " " (badge("bad", "overdue")) } }
            td.right { (age(row.age_ms)) }
            td.right { @if let Some(ms) = row.heartbeat_ms { (age(ms)) } }
            td { (process(row.tid, row.process.as_deref(), row.application.as_deref())) }
            td { (text(row.label.as_deref().unwrap_or_default())) }
            td.right { (row.participants) }
            td.right { (row.locks) }
        }
    };
    let header = [
        "Transaction",
        "State",
        ">Age",
        ">Last heartbeat",
        "Process",
        "Label",
        ">Documents",
        ">Locks",
    ];
    let rows: Vec<Markup> = rows.iter().map(row).collect();
    table(name, &header, &rows)
}

/// A state as a word.
pub(super) fn state(state: TransactionState) -> Markup {
    let kind = match state {
        TransactionState::Finished => "good",
        TransactionState::Unreadable => "bad",
        _ => "plain",
    };
    badge(kind, state.as_str())
}

/// The story of one transaction.
pub(super) async fn one(
    backend: &Backend,
    asked: &mut Asked,
    may_act: bool,
) -> Result<Markup, Problem> {
    let limit = take_limit(asked)?;
    let tid = tid_of(&mut asked.parameters)?;
    asked.finish_parameters()?;
    let report = backend.domain.admin().transaction(tid, limit).await?;
    Ok(html! {
        (faults(&report.faults))
        (story(&report, limit))
        @if may_act { (actions(&report)) }
    })
}

/// The tid of a request.
pub(super) fn tid_of(parameters: &mut Parameters) -> Result<AttemptId, Problem> {
    let tid = parameters.take("tid").unwrap_or_default();
    tid.trim().parse().map_err(|_| Problem::new(Code::Invalid, "the parameter tid is no tid"))
}

/// The facts about a transaction.
pub(super) fn story(report: &TransactionReport, limit: usize) -> Markup {
    let TransactionReport { tid, verdict, why, label, record, .. } = report;
    html! {
        dl.facts {
            (fact("Tid", &html! { code { (tid) } }))
            (fact("Verdict", &html! { (verdict_badge(*verdict)) " " (prose(why)) }))
            (fact("State of the record", &state(report.state)))
            (fact("Begun", &html! { (time(report.started_ms)) ", " (age(report.age_ms)) " ago" }))
            (fact("Attempt", &html! { (u32::from(report.attempt) + 1) }))
            (fact("Process", &process(*tid, report.process.as_deref(), report.application.as_deref())))
            @if let Some(label) = label { (fact("Label", &text(label))) }
            @if let Some(record) = record {
                @if let Some(version) = record.commit_version {
                    (fact("Commit version", &html! { code { (version) } }))
                }
                @if let Some(by) = &record.aborted_by {
                    (fact("Aborted by", &html! {
                        (text(by)) ": "
                        (text(record.aborted_because.as_deref().unwrap_or("no reason")))
                    }))
                }
                @if let Some(ms) = record.heartbeat_ms { (fact(">Last heartbeat", &time(ms))) }
                (fact("Last write of the record", &time(record.modified_ms)))
            }
            (fact("Next step", &prose(&next_step_of_transaction(*verdict, tid))))
        }
        (participants(report))
        (cut(report.truncated, limit))
    }
}

fn participants(report: &TransactionReport) -> Markup {
    let row = |one: &ParticipantReport| {
        let kind = match one.state {
            state if state.needs_operator() => "bad",
            state if state.is_applied() => "good",
            _ => "plain",
        };
        html! {
            td { (document(&one.document)) }
            td { (format!("{:?}", one.op).to_lowercase()) }
            td { (badge(kind, one.state.as_str())) }
            td { @if let Some(holder) = one.holder { (transaction(holder)) } }
        }
    };
    let rows: Vec<Markup> = report.participants.iter().map(row).collect();
    html! {
        @if !rows.is_empty() {
            h2 { "Documents of the record" }
            (table("Documents of the record", &["Document", "Operation", "Now", "Locked by"], &rows))
        }
        @if !report.locks.is_empty() {
            h2 { "Locks" }
            ul.documents { @for name in &report.locks { li { (document(name)) } } }
        }
    }
}

fn verdict_badge(verdict: Verdict) -> Markup {
    let kind = match verdict {
        Verdict::Overdue | Verdict::Damaged => "bad",
        Verdict::Unapplied | Verdict::Unmarked => "warn",
        Verdict::Finished => "good",
        _ => "plain",
    };
    badge(kind, verdict.as_str())
}

/// The links to the actions that the verdict permits.
fn actions(report: &TransactionReport) -> Markup {
    let aborts = matches!(report.verdict, Verdict::Running | Verdict::Overdue);
    let recovers =
        matches!(report.verdict, Verdict::Overdue | Verdict::Unapplied | Verdict::Unmarked);
    let tid = report.tid.to_string();
    html! {
        @if aborts || recovers {
            h2 { "Actions" }
            p.actions {
                @if aborts {
                    a.button.danger href={ "/_console/abort?" (query(&[("tid", &tid)])) } {
                        "Abort this transaction …"
                    }
                }
                @if recovers { a.button href="/_console/recover" { "Recover dead transactions …" } }
            }
        }
    }
}

/// Lists everything without progress, with the next step for each.
///
/// The list has transactions, locks, parts, dead letters and requests.
pub(super) async fn stuck(backend: &Backend, asked: &mut Asked) -> Result<Markup, Problem> {
    let limit = take_limit(asked)?;
    asked.finish_parameters()?;
    let domain = &backend.domain;
    let stall = stall_ms(domain);
    let findings = look(domain, stall, limit).await?;
    let rows_now = rows_of(findings.open, &findings.locks);
    let old = rows_now.into_iter().filter(|row| row.overdue || row.age_ms >= stall);
    let (dead, rest): (Vec<_>, Vec<_>) = old.partition(|row| row.overdue);
    Ok(html! {
        section {
            h2 { "Findings" }
            @if findings.messages.is_empty() {
                p.note { "Nothing has been without progress for " (stall / 1_000) " s or longer." }
            }
            ul.findings {
                @for message in &findings.messages {
                    li {
                        @match message.severity {
                            Severity::Error => (badge("bad", "not well")),
                            Severity::Note => (badge("plain", "note")),
                        }
                        " " (prose(message.text.trim_end_matches('.'))) ". "
                        b { "Next step: " } (prose(message.remedy.trim_end_matches('.'))) "."
                    }
                }
            }
        }
        section {
            h2 { "Owners without a sign of life for one lease" }
            @if dead.is_empty() { p.note { "None." } }
            @else { (rows("Transactions of silent owners", &dead)) }
        }
        section {
            h2 { "Other transactions that began " (stall / 1_000) " s ago or earlier" }
            @if rest.is_empty() { p.note { "None." } }
            @else { (rows("Long transactions", &rest)) }
        }
        (cut(findings.truncated, limit))
        (waits_for_operator(backend, limit).await)
    })
}
