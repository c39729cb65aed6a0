//! Verbs about the processes of a domain, and past waits for locks.

use txn_cli::{table, time_of};
use txn_core::Domain;
use txn_core::admin::ProcessReport;
use txn_serve::operator::{
    self, ComparedSpan, ComparedWaits, most_frequent_labels, most_frequent_processes,
    next_step_of_waits,
};

use super::hints::{cut, time};
use crate::answer::{Answer, Exit, Failure};

/// Lists the processes that use the domain.
pub(super) async fn processes(domain: &Domain, limit: usize) -> Result<Answer, Failure> {
    let list = operator::processes(domain, limit).await?;
    let mut text = match list.processes.is_empty() {
        true => {
            "No process is registered. Processes without a janitor register nothing.".to_owned()
        }
        false => {
            let header = [
                "number", "process", "program", "host", "library", "since", "renewed", "clock",
                "metrics",
            ];
            let mut table = table(header, &[6, 7]);
            for report in &list.processes {
                table.add_row(row(report));
            }
            table.to_string()
        }
    };
    if list.libraries.len() > 1 {
        text += &format!("\nSeveral versions of the library: {}.", list.libraries.join(", "));
    }
    text += &cut(list.truncated, limit);
    Ok(Answer::new(Exit::Well, text, &list))
}

fn row(report: &ProcessReport) -> [String; 9] {
    let ProcessReport { entry, number, unchanged_ms, silent, .. } = report;
    let process = match &entry.application {
        Some(application) => format!("{application} in {}", entry.process),
        None => entry.process.clone(),
    };
    let renewed = format!("{} ago{}", time(*unchanged_ms), if *silent { " (silent)" } else { "" });
    [
        number.clone(),
        process,
        format!("{}, pid {}", entry.program, entry.pid),
        entry.host.clone(),
        entry.library.clone(),
        time_of(entry.since_ms),
        renewed,
        entry.clock_ahead_ms.map(|ahead| format!("{ahead:+} ms")).unwrap_or_default(),
        entry.metrics_address.clone().unwrap_or_default(),
    ]
}

/// Lists past waits for locks, newest first.
///
/// With `against`, compares two ranges of the waits.
pub(super) async fn history(
    domain: &Domain,
    minutes: Option<u64>,
    against: Option<u64>,
    limit: usize,
) -> Result<Answer, Failure> {
    match (minutes, against) {
        (Some(minutes), Some(against)) => compared(domain, minutes, against, limit).await,
        (minutes, _) => past(domain, minutes, limit).await,
    }
}

async fn past(domain: &Domain, minutes: Option<u64>, limit: usize) -> Result<Answer, Failure> {
    let contention = operator::past_waits(domain, minutes, limit).await?;
    let has_waits = !contention.waits.is_empty();
    let mut text = match has_waits {
        false => none(minutes),
        true => {
            let header =
                ["began", "waited", "document", "label", "process", "holder", "its label", "end"];
            let mut table = table(header, &[1]);
            for wait in &contention.waits {
                table.add_row([
                    time_of(wait.began_ms),
                    time(wait.waited_ms),
                    format!("{}/{}", wait.collection, wait.id),
                    wait.label.as_deref().unwrap_or_default().to_owned(),
                    contention.process_of(wait.tid.process()).unwrap_or_default().to_owned(),
                    wait.holder.to_string(),
                    wait.holder_label.as_deref().unwrap_or_default().to_owned(),
                    wait.end.as_str().to_owned(),
                ]);
            }
            table.to_string()
        }
    };
    text += &format!("\nNext: {}.", next_step_of_waits(has_waits, &contention.processes));
    text += &cut(contention.truncated, limit);
    Ok(Answer::new(Exit::Well, text, &contention))
}

/// Lists the documents for which transactions waited longest in total.
pub(super) async fn hot(
    domain: &Domain,
    minutes: Option<u64>,
    limit: usize,
) -> Result<Answer, Failure> {
    let hot = operator::hot_documents(domain, minutes, limit).await?;
    let mut text = match hot.documents.is_empty() {
        true => none(minutes),
        false => {
            let header = [
                "document",
                "waits",
                "in total",
                "longest",
                "labels",
                "blocked by",
                "processes",
                "blocked by process",
            ];
            let mut table = table(header, &[1, 2, 3]);
            for document in &hot.documents {
                table.add_row([
                    format!("{}/{}", document.collection, document.id),
                    document.sums.waits.to_string(),
                    time(document.sums.total_ms),
                    time(document.sums.longest_ms),
                    most_frequent_labels(&document.waiting_labels),
                    most_frequent_labels(&document.blocking_labels),
                    most_frequent_processes(&document.waiting_processes),
                    most_frequent_processes(&document.blocking_processes),
                ]);
            }
            table.to_string()
        }
    };
    text += &format!("\nNext: {}.", hot.next);
    text += &cut(hot.truncated, limit);
    if !hot.complete {
        text += INCOMPLETE;
    }
    Ok(Answer::new(Exit::Well, text, &hot))
}

/// A note about waits that no process remembers.
const INCOMPLETE: &str = "\nEarlier waits are not counted: a process remembers its last ones.";

/// The sentence in place of an empty list of waits.
fn none(minutes: Option<u64>) -> String {
    match minutes {
        Some(minutes) => format!("No wait is recorded that ended in the last {minutes} min."),
        None => "No wait is recorded.".to_owned(),
    }
}

/// Shows two ranges of past waits side by side, by document.
async fn compared(
    domain: &Domain,
    minutes: u64,
    against: u64,
    limit: usize,
) -> Result<Answer, Failure> {
    if against < minutes {
        let message = format!("--against {against} is less than --minutes {minutes}");
        return Err(Failure::invalid(message));
    }
    let compared = operator::compared_waits(domain, minutes, against, limit).await?;
    let ComparedWaits { later, earlier, documents, truncated, next, .. } = &compared;
    let mut text = of_span("Later", later) + &of_span("Earlier", earlier);
    if !documents.is_empty() {
        let header = [
            "document",
            "later waits",
            "in total",
            "longest",
            "earlier waits",
            "in total",
            "longest",
        ];
        let mut table = table(header, &[1, 2, 3, 4, 5, 6]);
        for document in documents {
            let mut row = vec![format!("{}/{}", document.collection, document.id)];
            for sums in [&document.later, &document.earlier] {
                row.extend([sums.waits.to_string(), time(sums.total_ms), time(sums.longest_ms)]);
            }
            table.add_row(row);
        }
        text += &format!("{table}\n");
    }
    text += &format!("Next: {next}.");
    text += &cut(*truncated, limit);
    if !(later.complete && earlier.complete) {
        text += INCOMPLETE;
    }
    Ok(Answer::new(Exit::Well, text, &compared))
}

fn of_span(name: &str, ComparedSpan { span, sums, .. }: &ComparedSpan) -> String {
    format!(
        "{name}, from {} to {}: {} waits, {} in total\n",
        time_of(span.from_ms),
        time_of(span.to_ms),
        sums.waits,
        time(sums.total_ms)
    )
}
