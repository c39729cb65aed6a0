//! Commands on derived owners and on their events.

use std::time::Duration;

use txn_bank::{Bank, BankError, OWNERS, Owner, Rebuilt};
use txn_outbox::http::{self, HttpConfig};
use txn_outbox::{EventSource, Processor, ProcessorConfig};

use crate::cli::notify::http_config;
use crate::cli::{DRAIN, stop_signal};
use crate::console::args::{Command, Global};
use crate::console::failure::{Exit, Failure};
use crate::console::{exit_after, output};

/// The time without progress after which a worker gives up.
const STANDSTILL: Duration = Duration::from_secs(60);

/// A command with validated input, before the store is opened.
pub(crate) enum Action {
    Owner(String),
    Derive { at_most: Option<Duration> },
    Dispatch { may: Box<HttpConfig>, at_most: Option<Duration> },
    Rebuild,
}

impl Action {
    pub(crate) fn check(command: Command) -> Result<Self, Failure> {
        Ok(match command {
            Command::Owner { name } => Self::Owner(name),
            Command::Derive { seconds } => {
                Self::Derive { at_most: seconds.map(Duration::from_secs) }
            }
            Command::RebuildOwners => Self::Rebuild,
            Command::Dispatch { allow, allow_address, seconds } => Self::Dispatch {
                may: Box::new(http_config(&allow, &allow_address)?),
                at_most: seconds.map(Duration::from_secs),
            },
            _ => return Err(Failure::refused("this command is not about events")),
        })
    }
}

pub(crate) async fn run_action(
    bank: &Bank,
    action: Action,
    global: &Global,
) -> Result<Exit, Failure> {
    let json = global.json;
    match action {
        Action::Owner(name) => {
            let owner = bank.owner(&name).await?;
            let written = match json {
                true => output::print_json(&owner),
                false => output::print(&line_of(&owner)),
            };
            exit_after(written, Exit::Done)
        }
        Action::Derive { at_most } => {
            let events = bank.events()?;
            let processor = bank.derive_owners(ProcessorConfig::default()).await?;
            handle(bank, (&*events, OWNERS), processor, at_most, json).await
        }
        Action::Dispatch { may, at_most } => {
            let events = bank.outbox().await?.source();
            let processor = bank.dispatch(ProcessorConfig::default(), *may).await?;
            handle(bank, (&*events, http::TOPIC), processor, at_most, json).await
        }
        Action::Rebuild => {
            let rebuilt = bank.rebuild_owners().await?;
            let written = match json {
                true => output::print_json(&rebuilt),
                false => print_rebuilt(&rebuilt),
            };
            let exit = if rebuilt.failed.is_empty() { Exit::Done } else { Exit::Found };
            exit_after(written, exit)
        }
    }
}

fn print_rebuilt(rebuilt: &Rebuilt) -> std::io::Result<()> {
    let Rebuilt { written, deleted, failed, .. } = rebuilt;
    output::print(&format!("{written} owners written, {deleted} deleted that have no account"))?;
    failed.iter().try_for_each(|(what, why)| output::print(&format!("failed: {what}: {why}")))
}

/// Handles the events of a topic.
///
/// Ends after `at_most`, or when no event waits.
async fn handle(
    bank: &Bank,
    (events, topic): (&dyn EventSource, &str),
    processor: Processor,
    at_most: Option<Duration>,
    json: bool,
) -> Result<Exit, Failure> {
    let moved = || {
        let figures = processor.figures();
        figures.handled + figures.failed + figures.set_aside
    };
    let ended = tokio::select! {
        () = stop_signal() => Ok(true),
        ended = until_done(bank, (events, topic), at_most, moved) => ended,
    };
    let figures = processor.last_figures();
    if !processor.stop(DRAIN).await {
        tracing::warn!("what was under way goes on elsewhere");
    }
    let figures = figures();
    if !ended? {
        return Err(Failure::misconfigured(match figures.waited {
            0 => {
                "events wait that cannot be handled: another process has their shards, or see TXN_BANK_LOG=warn"
            }
            _ => {
                "events wait for an outage to end, and the next run retries them: see TXN_BANK_LOG=txn_outbox=debug"
            }
        }));
    }
    let written = match json {
        true => output::print_json(&figures),
        false => output::print(&format!(
            "{} handled, {} failed, {} set aside, {} times waited; {:.1} per second, {:.0} ms behind on average",
            figures.handled,
            figures.failed,
            figures.set_aside,
            figures.waited,
            figures.per_second,
            figures.mean_lag_ms
        )),
    };
    exit_after(written, Exit::Done)
}

/// Waits for the end of a worker. Returns whether all its work is done.
async fn until_done(
    bank: &Bank,
    (events, topic): (&dyn EventSource, &str),
    at_most: Option<Duration>,
    moved: impl Fn() -> u64,
) -> Result<bool, Failure> {
    let clock = bank.domain().config().clock();
    if let Some(at_most) = at_most {
        clock.sleep(at_most).await;
        return Ok(true);
    }
    let (mut before, mut since) = (moved(), clock.monotonic());
    loop {
        let waiting = events.backlog().await.map_err(BankError::from)?.topics;
        if waiting.get(topic).is_none_or(|waiting| *waiting == 0) {
            return Ok(true);
        }
        let now = moved();
        if now != before {
            (before, since) = (now, clock.monotonic());
        }
        if clock.monotonic().saturating_sub(since) > STANDSTILL {
            return Ok(false);
        }
        clock.sleep(Duration::from_millis(50)).await;
    }
}

fn line_of(owner: &Owner) -> String {
    let totals: Vec<String> = owner
        .totals
        .iter()
        .map(|one| format!("{} {}", output::grouped(one.total), one.currency))
        .collect();
    let accounts: Vec<&str> = owner.accounts.iter().map(String::as_str).collect();
    format!("{}: {} in {}", owner.owner, totals.join(", "), accounts.join(", "))
}
