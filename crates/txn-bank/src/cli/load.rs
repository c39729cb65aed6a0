//! The command `load`.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use txn_bank::{Bank, Load, LoadReport, SubmittedReport, Tally};

use crate::cli::{DRAIN, stop_signal};
use crate::console::args::Global;
use crate::console::failure::{Exit, Failure};
use crate::console::{address_of, config, exit_after, open_store, output};

/// The report of a load.
enum LoadResult {
    Direct(LoadReport),
    Submitted(SubmittedReport),
}

/// Runs a load. With `processors`, the load submits its transfers.
pub(crate) async fn run(
    global: &Global,
    load: &Load,
    processors: Option<usize>,
) -> Result<Exit, Failure> {
    // Handles signals from the start, because the open of a store may take time.
    let stopping = tokio::spawn(stop_signal());
    let stop = async {
        let _ = stopping.await;
    };
    let open = open_store(&address_of(global), global, true).await?;
    let tally = Arc::new(Tally::default());
    let config = config().with_observer(Some(tally.clone()));
    let bank = match Bank::create(open.store.clone(), &global.domain, config).await {
        Ok(bank) => bank,
        Err(error) => {
            open.close().await;
            return Err(error.into());
        }
    };
    let bar = match std::io::stderr().is_terminal() && !global.json {
        true => indicatif::ProgressBar::new(load.duration.as_secs().max(1)),
        false => indicatif::ProgressBar::hidden(),
    };
    let style = indicatif::ProgressStyle::with_template("{bar:30} {pos}/{len} s  {msg}");
    bar.set_style(style.unwrap_or_else(|_| indicatif::ProgressStyle::default_bar()));
    let shown = bar.clone();
    let progress = move |elapsed: Duration, committed: u64, failed: u64| {
        shown.set_position(elapsed.as_secs());
        shown.set_message(format!("{committed} committed, {failed} failed"));
    };
    let ran = match processors {
        None => Box::pin(load.run(&bank, &tally, stop, &progress)).await.map(LoadResult::Direct),
        Some(processors) => {
            let ran = Box::pin(load.run_submitted(&bank, processors, stop, &progress));
            ran.await.map(LoadResult::Submitted)
        }
    };
    bar.finish_and_clear();
    if ran.is_err() {
        bank.shutdown(DRAIN).await;
    }
    open.close().await;
    match ran? {
        LoadResult::Direct(report) => print_direct(&report, global.json),
        LoadResult::Submitted(report) => print_submitted(&report, global.json),
    }
}

fn print_direct(report: &LoadReport, json: bool) -> Result<Exit, Failure> {
    let written = match json {
        true => output::print_json(report),
        false => output::load(report),
    };
    if !report.unsettled.is_empty() {
        return exit_after(written, Exit::Unknown);
    }
    match report.committed {
        0 => Err(idle(report.last_error.as_deref(), report.interrupted)),
        _ => exit_after(written, Exit::Done),
    }
}

fn print_submitted(report: &SubmittedReport, json: bool) -> Result<Exit, Failure> {
    let written = match json {
        true => output::print_json(report),
        false => output::submitted_load(report),
    };
    match report.accepted {
        0 => Err(idle(report.last_error.as_deref(), report.interrupted)),
        _ => exit_after(written, Exit::Done),
    }
}

fn idle(error: Option<&str>, interrupted: bool) -> Failure {
    Failure::idle(match error {
        Some(error) => error,
        None if interrupted => "it was ended before the first one was",
        None => "the time was over before the first one was",
    })
}
