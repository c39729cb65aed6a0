//! Commands on submitted transfers.

use std::time::Duration;

use txn_bank::{APPLICATION, Bank, Leg};
use txn_requests::{Reason, Requests, RequestsConfig, State, Status, Tally};

use crate::cli::{DRAIN, legs_of, notify, stop_signal};
use crate::console::args::{Command, Global};
use crate::console::failure::{Exit, Failure};
use crate::console::{exit_after, output};

/// A command with validated input, before the store is opened.
pub(crate) enum Action {
    Submit { legs: Vec<Leg>, key: Option<String>, notify: Vec<String> },
    Wait { key: String, at_most: Duration },
    Reverse { key: String, by: String },
    Process { at_most: Option<Duration> },
    Recover { age: Duration },
}

impl Action {
    pub(crate) fn check(command: Command) -> Result<Self, Failure> {
        Ok(match command {
            Command::Submit { legs, id, notify } => {
                Self::Submit { legs: legs_of(&legs, id.as_deref())?, key: id, notify }
            }
            Command::Wait { key, seconds } => {
                Self::Wait { key, at_most: Duration::from_secs(seconds) }
            }
            Command::Reverse { key, id } => {
                let by = id.unwrap_or_else(|| format!("reverse-{key}"));
                Self::Reverse { key, by }
            }
            Command::Process { seconds } => {
                Self::Process { at_most: seconds.map(Duration::from_secs) }
            }
            Command::Recover { older_than } => {
                Self::Recover { age: Duration::from_secs(older_than) }
            }
            _ => return Err(Failure::refused("this command is not about requests")),
        })
    }
}

pub(crate) async fn run_action(
    bank: &Bank,
    action: Action,
    global: &Global,
) -> Result<Exit, Failure> {
    let mut config = RequestsConfig::default();
    if let Action::Recover { age } = &action {
        config = config.with_recover_after(*age);
    }
    if let Action::Submit { notify, .. } = &action
        && !notify.is_empty()
    {
        config = config.with_outbox(Some(bank.outbox().await?));
    }
    let requests = bank.requests(config).await?;
    let done = on(bank, &requests, action, global.json).await;
    if !requests.shutdown(DRAIN).await {
        tracing::warn!("not everything is done yet: another process does the rest");
    }
    done
}

async fn on(bank: &Bank, requests: &Requests, action: Action, json: bool) -> Result<Exit, Failure> {
    let status = match action {
        Action::Submit { legs, key, notify } => {
            let key = key.unwrap_or_else(|| bank.new_key());
            let calls = notify::calls(&notify, &key, &legs);
            bank.submit_with(requests, &key, &legs, calls).await?
        }
        Action::Wait { key, at_most } => requests.wait(&key, at_most).await?,
        Action::Reverse { key, by } => bank.reverse(requests, &key, &by).await?,
        Action::Process { at_most: None } => {
            let tally = all_open(requests).await?;
            return exit_after(print_tally(tally, json), Exit::Done);
        }
        Action::Process { at_most: Some(at_most) } => {
            let processor = requests.start(Some(APPLICATION));
            tokio::select! {
                () = tokio::time::sleep(at_most) => {}
                () = stop_signal() => {}
            }
            if !processor.stop(DRAIN).await {
                tracing::warn!("what was under way goes on elsewhere");
            }
            return Ok(Exit::Done);
        }
        Action::Recover { .. } => {
            let tally = requests.recover(Some(APPLICATION)).await?;
            return exit_after(print_tally(tally, json), Exit::Done);
        }
    };
    let written = match json {
        true => output::print_json(&status),
        false => output::print(&line(bank, &status)),
    };
    exit_after(written, Exit::Done)
}

/// Executes all open requests, batch by batch, until no request makes progress.
async fn all_open(requests: &Requests) -> Result<Tally, Failure> {
    let mut all = Tally::default();
    loop {
        let one = requests.process_open(Some(APPLICATION)).await?;
        if one == Tally::default() {
            return Ok(all);
        }
        all += one;
    }
}

fn print_tally(tally: Tally, json: bool) -> std::io::Result<()> {
    let Tally { committed, rolled_back, finished, failed, quarantined, .. } = tally;
    match json {
        true => output::print_json(&tally),
        false => output::print(&format!(
            "{committed} committed, {rolled_back} rolled back, {finished} finished for other processes, {failed} failed, \
             {quarantined} set aside"
        )),
    }
}

/// A reason with the refused value. The bank may show its data.
pub(crate) fn reason_of(bank: &Bank, reason: &Reason) -> String {
    match reason {
        Reason::Refused(refusal) => match (bank.refused(refusal), &refusal.current) {
            (Some(error), _) => error.to_string(),
            (None, Some(current)) => format!("{refusal} (it is {current})"),
            (None, None) => refusal.to_string(),
        },
        reason => reason.to_string(),
    }
}

/// A request as one line.
fn line(bank: &Bank, status: &Status) -> String {
    let times = &status.times;
    let at = match status.state {
        State::Created => Some(times.created_ms),
        State::Pending => times.pending_ms,
        State::Committed => times.committed_ms,
        State::Finished => times.finished_ms,
        State::Terminating => times.terminating_ms,
        State::RolledBack => times.rolled_back_ms,
        _ => times.quarantined_ms,
    };
    let at = output::time_of(at.unwrap_or(times.modified_ms));
    let mut line = format!("{}: {} at {at}", status.id, status.state);
    if let Some(reason) = &status.reason {
        line = format!("{line}; {}", reason_of(bank, reason));
    }
    for (words, other) in [("it reverses", &status.reverses), ("reversed by", &status.reversed_by)]
    {
        if let Some(other) = other {
            line = format!("{line}; {words} {other}");
        }
    }
    line
}
