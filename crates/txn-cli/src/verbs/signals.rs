//! Verbs about the processes of a domain, and past waits for locks.

use txn_cli::{table, time_of};
use txn_core::Domain;
use txn_core::admin::ProcessReport;
use txn_serve::operator;

use super::hints::{cut, time};
use crate::answer::{Answer, Exit, Failure};

/// Lists the processes that use the domain.
pub(super) async fn processes(domain: &Domain) -> Result<Answer, Failure> {
    let list = operator::processes(domain).await?;
    let mut text = match list.processes.is_empty() {
        true => {
            "No process is registered. Processes without a janitor register nothing.".to_owned()
        }
        false => {
            let header =
                ["number", "process", "program", "host", "library", "since", "renewed", "clock"];
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
    Ok(Answer::new(Exit::Well, text, &list))
}

fn row(report: &ProcessReport) -> [String; 8] {
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
    ]
}

/// Lists past waits for locks, newest first.
pub(super) async fn history(domain: &Domain, limit: usize) -> Result<Answer, Failure> {
    let contention = domain.admin().contention_of_all(limit).await?;
    let mut text = match contention.waits.is_empty() {
        true => "No wait is recorded. Processes record them with `Config::with_write_contention`."
            .to_owned(),
        false => {
            let header = ["began", "waited", "document", "label", "holder", "its label", "end"];
            let mut table = table(header, &[1]);
            for wait in &contention.waits {
                table.add_row([
                    time_of(wait.began_ms),
                    time(wait.waited_ms),
                    format!("{}/{}", wait.collection, wait.id),
                    wait.label.as_deref().unwrap_or_default().to_owned(),
                    wait.holder.to_string(),
                    wait.holder_label.as_deref().unwrap_or_default().to_owned(),
                    wait.end.as_str().to_owned(),
                ]);
            }
            format!("{table}\nNext: `txn why COLLECTION ID`.")
        }
    };
    text += &cut(contention.truncated, limit);
    Ok(Answer::new(Exit::Well, text, &contention))
}
