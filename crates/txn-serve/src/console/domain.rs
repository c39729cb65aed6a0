//! Pages about the processes and the parts of the domain.

use maud::{Markup, html};
use txn_core::admin::ProcessReport;

use super::parts::{age, badge, fact, faults, table, text, time};
use crate::asked::Asked;
use crate::backend::Backend;
use crate::http::problem::Problem;
use crate::operator;

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
