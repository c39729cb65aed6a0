//! The first page: counts, plots, and the oldest transactions.

use std::time::Duration;

use maud::{Markup, html};
use tokio::time::Instant;
use txn_core::admin::{LockStanding, LockedDocuments, TransactionState};

use super::parts::{count, faults_with};
use super::plot::{Axis, Line, plot};
use super::transactions::rows;
use crate::asked::Asked;
use crate::backend::Backend;
use crate::http::problem::Problem;
use crate::operator::{TransactionRow, duration, rows_of};
use crate::samples::{Sample, Samples};

/// The maximum number of transactions and locks that the page counts.
const MOST: usize = 1_000;

/// The number of transactions that the page lists.
const SHOWN: usize = 5;

pub(super) async fn overview(
    backend: &Backend,
    samples: &Samples,
    asked: &mut Asked,
) -> Result<Markup, Problem> {
    asked.finish_parameters()?;
    let domain = &backend.domain;
    let open = domain.admin().transactions(MOST).await?;
    let locks = domain.admin().locks(MOST).await?;
    let clock = domain.admin().overview().await?.clock_ahead_ms;
    let (faults, more) = (faults_with(&open.faults, &locks), open.truncated || locks.truncated);
    let all = rows_of(open.transactions, &locks.locks);
    let oldest = &all[..all.len().min(SHOWN)];
    Ok(html! {
        (faults)
        (counts(backend, (&all, more), &locks, clock))
        (plots(&samples.all()))
        section {
            h2 { "Oldest open transactions" }
            @if oldest.is_empty() { p.note { "No transaction is open." } }
            @else {
                (rows("Oldest open transactions", oldest))
                @if all.len() > SHOWN {
                    p { a href="/_console/transactions" { "All open transactions" } }
                }
            }
        }
    })
}

fn counts(
    backend: &Backend,
    (rows, more): (&[TransactionRow], bool),
    locks: &LockedDocuments,
    clock: Option<i64>,
) -> Markup {
    let domain = &backend.domain;
    let overdue = rows.iter().filter(|row| row.overdue).count();
    let committed = rows.iter().filter(|row| row.state == TransactionState::Committed).count();
    let void = locks.locks.iter().filter(|lock| lock.standing == LockStanding::Void).count();
    let waits = domain.admin().present_waits(MOST).len();
    let load = domain.current_load();
    let oldest = rows.iter().map(|row| row.age_ms).max();
    let tiles = [
        ("Open transactions", count(rows.len(), more), "transactions"),
        ("Committed, not applied", count(committed, more), "transactions?state=committed"),
        ("Owners without a sign of life", count(overdue, more), "stuck"),
        ("Locked documents", count(locks.locks.len(), locks.truncated), "documents"),
        ("Void locks", count(void, locks.truncated), "documents"),
        ("Waits in this gateway", count(waits, waits >= MOST), "waits"),
    ];
    html! {
        section aria-label="Counts" {
            ul.tiles {
                @for (name, value, page) in &tiles {
                    @let alarming = *page == "stuck" && overdue > 0;
                    li.alarm[alarming] {
                        a href={ "/_console/" (page) } { span.value { (value) } span.name { (name) } }
                    }
                }
            }
            p.note {
                "Oldest open transaction: "
                @match oldest { Some(ms) => (duration(ms)), None => "none" }
                ". This gateway runs " (load.running) " transactions, and " (load.waiting)
                " more wait for a permit."
                @if let Some(ms) = clock {
                    " The clock of this machine is " (ms.unsigned_abs()) " ms "
                    @if ms < 0 { "behind" } @else { "ahead of" } " the server's."
                }
            }
        }
    }
}

/// The rates and times of this gateway. The pages of the console and probes do not count.
fn plots(samples: &[Sample]) -> Markup {
    let now = Instant::now();
    let line = |name, class, value: &dyn Fn(&Sample) -> Option<f64>| Line {
        name,
        class,
        points: samples
            .iter()
            .map(|it| (now.saturating_duration_since(it.at).as_secs_f64(), value(it)))
            .collect(),
    };
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let rates = [
        line("Requests", "first", &|it| Some(it.rate(it.requests))),
        line("Commits", "second", &|it| Some(it.rate(it.commits))),
        line("Failures", "third", &|it| Some(it.rate(it.failures))),
    ];
    let times = [
        line("Median", "first", &|it| it.times.map(|(median, _)| ms(median))),
        line("99th percentile", "second", &|it| it.times.map(|(_, high)| ms(high))),
    ];
    html! {
        section aria-label="Plots of this gateway" {
            h2 { "This gateway, last 10 minutes" }
            div.plots {
                (plot("rates", ("Throughput", "per second"), Axis::linear(&rates), &rates))
                (plot("times", ("Time to the answer", "ms"), Axis::logarithmic(&times), &times))
            }
        }
    }
}
