//! Pages about documents. No page has their contents.

use maud::{Markup, html};
use txn_core::ErrorKind;
use txn_core::admin::{CommitReport, DocumentLock, DocumentName, DocumentReport, LockStanding};

use super::parts::{
    age, badge, cut, document, document_of, fact, faults_with, process, prose, table, text, time,
    transaction, unrecorded,
};
use super::transactions::state;
use crate::asked::Asked;
use crate::backend::Backend;
use crate::http::problem::{Code, Problem};
use crate::operator::answers::take_limit;
use crate::operator::{
    HotDocument, HotList, hot_documents, most_frequent_labels, next_step_of_document,
};

/// The number of hot documents that a page lists.
const HOT: usize = 20;

/// Lists hot and locked documents.
pub(super) async fn list(backend: &Backend, asked: &mut Asked) -> Result<Markup, Problem> {
    let limit = take_limit(asked)?;
    asked.finish_parameters()?;
    let admin = backend.domain.admin();
    let locks = admin.locks(limit).await?;
    let hot = hot_documents(&backend.domain, None, HOT).await?;
    let rows: Vec<Markup> = locks.locks.iter().map(lock_row).collect();
    Ok(html! {
        (faults_with(&[], &locks))
        form.filter method="get" action="/_console/document" role="search" {
            label { "Collection " input type="text" name="collection" required; }
            label { "Id " input type="text" name="id" required autocomplete="off"; }
            label { "Routing, if any " input type="text" name="routing" autocomplete="off"; }
            button type="submit" { "Show its story" }
        }
        section {
            h2 { "Hot documents" }
            (hot_table(&hot))
            @if !hot.complete { p.note { "Earlier waits are not counted." } }
        }
        section {
            h2 { "Locked documents" }
            @if rows.is_empty() { p.note { "No document is locked." } }
            @else {
                (table(
                    "Locked documents",
                    &["Document", "Locked by", "State", "Lock", ">Age", "Process", "Label"],
                    &rows,
                ))
            }
            (cut(locks.truncated, limit))
        }
    })
}

fn lock_row(lock: &DocumentLock) -> Markup {
    html! {
        td { (document(&lock.document)) }
        td { (transaction(lock.holder)) }
        td { (state(lock.state)) @if lock.overdue { " " (badge("bad", "overdue")) } }
        td { (standing(lock.standing)) }
        td.right { (age(lock.age_ms)) }
        td { (process(lock.holder, lock.process.as_deref(), lock.application.as_deref())) }
        td { (text(lock.label.as_deref().unwrap_or_default())) }
    }
}

fn standing(standing: LockStanding) -> Markup {
    let kind = match standing {
        LockStanding::Unknown => "bad",
        LockStanding::Unapplied => "warn",
        _ => "plain",
    };
    badge(kind, standing.as_str())
}

/// The documents for which transactions waited longest, in total.
fn hot_table(hot: &HotList) -> Markup {
    let row = |hot: &HotDocument| {
        html! {
            td { (document_of(&hot.collection, &hot.id, hot.routing.as_deref())) }
            td.right { (hot.sums.waits) }
            td.right { (age(hot.sums.total_ms)) }
            td.right { (age(hot.sums.longest_ms)) }
            td { (text(&most_frequent_labels(&hot.waiting_labels))) }
            td { (text(&most_frequent_labels(&hot.blocking_labels))) }
            td { (transaction(hot.last_holder)) }
        }
    };
    let rows: Vec<Markup> = hot.documents.iter().map(row).collect();
    html! {
        @if rows.is_empty() {
            (unrecorded("No wait for a lock is recorded."))
        } @else {
            (table(
                "Hot documents",
                &[
                    "Document", ">Waits", ">Time in total", ">Longest", "Labels", "Blocked by",
                    "Last holder",
                ],
                &rows,
            ))
            (cut(hot.truncated, HOT))
        }
    }
}

/// The story of one document.
pub(super) async fn one(backend: &Backend, asked: &mut Asked) -> Result<Markup, Problem> {
    let mut take = |name| asked.parameters.take(name).filter(|text| !text.is_empty());
    let (collection, id, routing) = (take("collection"), take("id"), take("routing"));
    asked.finish_parameters()?;
    let (Some(collection), Some(id)) = (collection, id) else {
        return Err(Problem::new(Code::Invalid, "the page needs a collection and an id"));
    };
    asked.named.documents(&collection, 1);
    let report = backend.domain.admin().document(&collection, &id, routing.as_deref()).await;
    let report = report.map_err(|error| match error.kind() {
        ErrorKind::Misconfigured => Problem::new(Code::NoCollection, error.to_string()),
        _ => error.into(),
    })?;
    Ok(story(&report))
}

fn story(report: &DocumentReport) -> Markup {
    let DocumentName { collection, id, routing, .. } = &report.document;
    let exists = match (report.exists, report.placeholder) {
        (true, _) => "yes",
        (false, true) => "not yet: a transaction is inserting it",
        (false, false) => "no",
    };
    let commits = report.commit.iter().chain(report.earlier.iter().rev());
    let row = |commit: &CommitReport| {
        html! {
            td { (time(commit.time_ms)) }
            td { code { (commit.version) } }
            td { "process " (text(&commit.process)) }
        }
    };
    let rows: Vec<Markup> = commits.map(row).collect();
    html! {
        dl.facts {
            (fact("Collection", &text(collection)))
            (fact("Id", &text(id)))
            @if let Some(routing) = routing { (fact("Routing", &text(routing))) }
            (fact("Exists", &html! { (exists) }))
            @match &report.lock {
                None => (fact("Lock", &html! { "none" })),
                Some(lock) => {
                    (fact("Lock", &html! { (standing(lock.standing)) " by " (transaction(lock.holder)) }))
                    (fact("Holder", &html! {
                        (state(lock.state)) @if lock.overdue { " " (badge("bad", "overdue")) }
                        ", begun " (age(lock.age_ms)) " ago, "
                        (process(lock.holder, lock.process.as_deref(), lock.application.as_deref()))
                    }))
                }
            }
            (fact("Next step", &prose(&next_step_of_document(report))))
        }
        h2 { "Commits, newest first" }
        @if rows.is_empty() { p.note { "No transaction has written the document." } }
        @else {
            (table("Commits", &["Time", "Version", "Process"], &rows))
            p.note { "A document keeps one or two earlier commits of each process." }
        }
    }
}
