//! Pages about the processes, the parts, and the systems of the domain.

use maud::{Markup, html};
use txn_core::admin::ProcessReport;
use txn_outbox::DeadLetter;
use txn_requests::{Selection, State, Status};

use super::parts::{age, badge, cut, fact, faults, prose, table, text, time};
use crate::asked::Asked;
use crate::backend::Backend;
use crate::http::problem::Problem;
use crate::operator;
use crate::systems::opened::System;

/// The maximum number of lost parts on a page.
const LOST: usize = 100;

/// Lists the processes of the domain.
pub(super) async fn processes(backend: &Backend, asked: &mut Asked) -> Result<Markup, Problem> {
    asked.finish_parameters()?;
    let list = operator::processes(&backend.domain, usize::MAX).await?;
    let rows: Vec<Markup> = list.processes.iter().map(row).collect();
    let header = ["Number", "Process", "Program", "Host", "Library", "Since", "Renewed", ">Clock"];
    Ok(html! {
        @if rows.is_empty() {
            p.note { "No process is registered. Processes without a janitor register nothing." }
        } @else { (table("Processes", &header, &rows)) }
        @if list.libraries.len() > 1 {
            p.message { "Several versions of the library: " (text(&list.libraries.join(", "))) "." }
        }
    })
}

fn row(report: &ProcessReport) -> Markup {
    let ProcessReport { entry, number, unchanged_ms, silent, .. } = report;
    html! {
        td { code { (text(number)) } }
        td {
            @if let Some(application) = &entry.application { (text(application)) " in " }
            (text(&entry.process))
        }
        td { (text(&entry.program)) ", pid " (entry.pid) }
        td { (text(&entry.host)) }
        td { (text(&entry.library)) }
        td { (time(entry.since_ms)) }
        td { (age(*unchanged_ms)) " ago" @if *silent { " " (badge("bad", "silent")) } }
        td.right { @if let Some(ahead) = entry.clock_ahead_ms { (format!("{ahead:+} ms")) } }
    }
}

/// Lists the partitions of the transaction table, and the collections.
pub(super) async fn partitions(backend: &Backend, asked: &mut Asked) -> Result<Markup, Problem> {
    asked.finish_parameters()?;
    let admin = backend.domain.admin();
    let overview = admin.overview().await?;
    let lost = admin.lost_parts(LOST).await?;
    let row = |part: &txn_core::admin::PartitionName| {
        html! { td { (part.day) } td { code { (text(&part.name)) } } }
    };
    let rows: Vec<Markup> = overview.partitions.iter().map(row).collect();
    Ok(html! {
        (faults(&lost))
        dl.facts {
            (fact("Domain", &text(&overview.domain)))
            (fact("Time of the domain", &time(overview.now_ms)))
            @if let Some(day) = overview.dropped_through {
                (fact("Dropped through", &html! { (day) }))
            }
        }
        section {
            h2 { "Partitions of the transaction table, one for each UTC day" }
            @if rows.is_empty() { p.note { "There is no partition." } }
            @else { (table("Partitions", &["Day", "Name"], &rows)) }
        }
        section {
            h2 { "Collections" }
            @if overview.collections.is_empty() { p.note { "There is no collection." } }
            ul.documents { @for name in &overview.collections { li { code { (text(name)) } } } }
        }
    })
}

/// Lists the dead letters and the quarantined requests, which wait for an operator.
pub(super) async fn waits_for_operator(backend: &Backend, limit: usize) -> Markup {
    html! {
        section {
            h2 { "Dead letters" }
            (unless_failed(dead_letters(backend, limit).await))
        }
        section {
            h2 { "Quarantined requests" }
            (unless_failed(quarantined(backend, limit).await))
        }
    }
}

/// One failed part leaves the remaining page.
fn unless_failed(part: Result<Markup, Problem>) -> Markup {
    part.unwrap_or_else(|problem| html! { p.message.error { (prose(problem.detail())) } })
}

async fn dead_letters(backend: &Backend, limit: usize) -> Result<Markup, Problem> {
    if !backend.systems.exists(System::Outbox).await? {
        return Ok(html! { p.note { "The domain has no outbox." } });
    }
    let dead = backend.systems.outbox().await?.source().dead_letters().await?;
    let rows: Vec<Markup> = dead.letters.iter().take(limit).map(dead_letter).collect();
    Ok(html! {
        @if rows.is_empty() { p.note { "None." } }
        @else { (table("Dead letters", &["Event", "Died", ">Failures", "Reason", "Next step"], &rows)) }
        (cut(dead.letters.len() > limit, limit))
        @if !dead.newer.is_empty() {
            p.message { (dead.newer.len()) " dead letters have a newer format." }
        }
    })
}

fn dead_letter(letter: &DeadLetter) -> Markup {
    let DeadLetter { event, error, died_ms, .. } = letter;
    html! {
        td { code { (text(&event.id)) } }
        td { (time(*died_ms)) }
        td.right { (event.failures) }
        td { (text(error)) }
        td { (prose("`txn dead retry ID`, once the reason is gone")) }
    }
}

async fn quarantined(backend: &Backend, limit: usize) -> Result<Markup, Problem> {
    if !backend.systems.exists(System::Requests).await? {
        return Ok(html! { p.note { "The domain has no submitted requests." } });
    }
    let selection = Selection::default().with_states([State::Quarantined]);
    let found = backend.systems.requests().await?.list(&selection).await?;
    let rows: Vec<Markup> = found.iter().take(limit).map(request).collect();
    Ok(html! {
        @if rows.is_empty() { p.note { "None." } }
        @else { (table("Quarantined requests", &["Request", ">Failures", "Reason", "Next step"], &rows)) }
        (cut(found.len() > limit, limit))
    })
}

fn request(status: &Status) -> Markup {
    let reason = status.reason.as_ref().map(ToString::to_string).unwrap_or_default();
    html! {
        td { code { (text(&status.id)) } }
        td.right { (status.failures) }
        td { (text(&reason)) }
        td { (prose(operator::next_step_of_request(status.state))) }
    }
}
