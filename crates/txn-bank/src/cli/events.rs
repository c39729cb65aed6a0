//! Commands on the owners that are derived from the accounts, and on the events that keep them up to date.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use txn_bank::{Bank, BankError, Owner, Rebuilt};
use txn_core::clock::Clock;
use txn_outbox::{Backlog, DeadLetter, EventSource, OutboxError, ProcessorConfig};

use crate::cli::{DRAIN, asked_to_stop};
use crate::console::args::{Command, DeadLetters, Global, Which};
use crate::console::failure::{Exit, Failure};
use crate::console::{output, said};

/// How long nothing may move until a worker that is to handle everything gives up.
const STANDSTILL: Duration = Duration::from_secs(60);

/// A command whose input is sound as far as it can be known without the store.
pub(crate) enum Asked {
    Owner(String),
    Derive { at_most: Option<Duration> },
    Events,
    Rebuild,
    List,
    Change { which: Which, drops: bool },
}

impl Asked {
    pub(crate) fn check(command: Command) -> Result<Self, Failure> {
        Ok(match command {
            Command::Owner { name } => Self::Owner(name),
            Command::Derive { seconds } => {
                Self::Derive { at_most: seconds.map(Duration::from_secs) }
            }
            Command::Events => Self::Events,
            Command::RebuildOwners => Self::Rebuild,
            Command::DeadLetters { what: None } => Self::List,
            Command::DeadLetters { what: Some(DeadLetters::Retry(which)) } => {
                Self::Change { which, drops: false }
            }
            Command::DeadLetters { what: Some(DeadLetters::Drop(which)) } => {
                Self::Change { which, drops: true }
            }
            _ => return Err(Failure::refused("this command is not about events")),
        })
    }
}

pub(crate) async fn carry_out(bank: &Bank, asked: Asked, global: &Global) -> Result<Exit, Failure> {
    let json = global.json;
    match asked {
        Asked::Owner(name) => {
            let owner = bank.owner(&name).await?;
            let written = match json {
                true => output::print_json(&owner),
                false => output::print(&line_of(&owner)),
            };
            said(written, Exit::Done)
        }
        Asked::Derive { at_most } => derive(bank, at_most, json).await,
        Asked::Events => {
            let backlog = bank.events()?.backlog().await.map_err(BankError::from)?;
            let now = bank.domain().config().clock.wall();
            said(backlog_of(&backlog, now, json), Exit::Done)
        }
        Asked::Rebuild => {
            let rebuilt = bank.rebuild_owners().await?;
            let written = match json {
                true => output::print_json(&rebuilt),
                false => told_of(&rebuilt),
            };
            let exit = if rebuilt.failed.is_empty() { Exit::Done } else { Exit::Found };
            said(written, exit)
        }
        Asked::List => {
            let dead = bank.events()?.dead_letters().await.map_err(BankError::from)?;
            let is_none = dead.letters.is_empty() && dead.newer.is_empty();
            let exit = if is_none { Exit::Done } else { Exit::Found };
            let told = dead.letters.iter().try_for_each(|letter| tell(letter, None, json));
            said(told.and_then(|()| tell_newer(&dead.newer, json)), exit)
        }
        Asked::Change { which, drops } => change(bank, which, drops, json).await,
    }
}

fn told_of(rebuilt: &Rebuilt) -> std::io::Result<()> {
    let Rebuilt { written, deleted, failed, .. } = rebuilt;
    output::print(&format!("{written} owners written, {deleted} deleted that have no account"))?;
    failed.iter().try_for_each(|(what, why)| output::print(&format!("failed: {what}: {why}")))
}

/// Derives owners: for so long, or until nothing waits.
async fn derive(bank: &Bank, at_most: Option<Duration>, json: bool) -> Result<Exit, Failure> {
    let events = bank.events()?;
    let processor = bank.derive_owners(ProcessorConfig::default()).await?;
    let ended = tokio::select! {
        () = asked_to_stop() => Ok(true),
        ended = until_done(bank, &*events, at_most, || processor.figures().handled) => ended,
    };
    let figures = processor.figures();
    if !processor.stop(DRAIN).await {
        tracing::warn!("what was under way goes on elsewhere");
    }
    if !ended? {
        return Err(Failure::misconfigured(
            "events wait that cannot be handled: another process has their shards, or see TXN_BANK_LOG=warn",
        ));
    }
    let written = match json {
        true => output::print_json(&figures),
        false => output::print(&format!(
            "{} handled, {} failed, {} set aside; {:.1} per second, {:.0} ms behind on average",
            figures.handled,
            figures.failed,
            figures.set_aside,
            figures.per_second,
            figures.mean_lag_ms
        )),
    };
    said(written, Exit::Done)
}

/// Waits until a worker has done what it was to do. Returns whether it has.
async fn until_done(
    bank: &Bank,
    events: &dyn EventSource,
    at_most: Option<Duration>,
    handled: impl Fn() -> u64,
) -> Result<bool, Failure> {
    let clock: &dyn Clock = &*bank.domain().config().clock;
    if let Some(at_most) = at_most {
        clock.sleep(at_most).await;
        return Ok(true);
    }
    let (mut before, mut since) = (handled(), clock.monotonic());
    loop {
        if events.backlog().await.map_err(BankError::from)?.events == 0 {
            return Ok(true);
        }
        let now = handled();
        if now != before {
            (before, since) = (now, clock.monotonic());
        }
        if clock.monotonic().saturating_sub(since) > STANDSTILL {
            return Ok(false);
        }
        clock.sleep(Duration::from_millis(50)).await;
    }
}

/// Tries dead letters again, or drops them: one or all.
async fn change(bank: &Bank, which: Which, drops: bool, json: bool) -> Result<Exit, Failure> {
    let events = bank.events()?;
    let Which { id, all, dry_run } = which;
    let (letters, newer) = match id.filter(|_| !all) {
        Some(id) => match events.dead_letter(&id).await {
            Err(OutboxError::NotFound(_)) => {
                return Err(Failure::refused(format!("there is no dead letter {id:?}")));
            }
            letter => (vec![letter.map_err(BankError::from)?], BTreeMap::new()),
        },
        None => {
            let dead = events.dead_letters().await.map_err(BankError::from)?;
            (dead.letters, dead.newer)
        }
    };
    for letter in &letters {
        let what = match (dry_run, drops) {
            (true, true) => "would be dropped",
            (true, false) => "would be tried again",
            (false, true) => {
                events.discard(&letter.event.id).await.map_err(BankError::from)?;
                "dropped"
            }
            (false, false) => {
                events.retry(&letter.event.id).await.map_err(BankError::from)?;
                "to be tried again"
            }
        };
        said(tell(letter, Some(what), json), Exit::Done)?;
    }
    let exit = if newer.is_empty() { Exit::Done } else { Exit::Found };
    said(tell_newer(&newer, json), exit)
}

/// Tells of those that stay, because only a newer program can read them.
fn tell_newer(newer: &BTreeMap<String, u32>, json: bool) -> std::io::Result<()> {
    newer.iter().try_for_each(|(id, format)| match json {
        true => output::print_json(&json!({ "id": id, "newer_format": format })),
        false => output::print(&format!(
            "{id}: has the format {format}, which this version does not know: use the newer one"
        )),
    })
}

fn tell(letter: &DeadLetter, what: Option<&str>, json: bool) -> std::io::Result<()> {
    let DeadLetter { event, error, died_ms, .. } = letter;
    if json {
        let payload: Value = event.payload().unwrap_or_default();
        return output::print_json(&json!({
            "id": event.id, "topic": event.queue.topic(), "key": event.queue.key(), "payload": payload,
            "emitted_ms": event.emitted_ms, "died_ms": died_ms, "failures": event.failures, "error": error,
            "action": what,
        }));
    }
    let at = output::time_of(*died_ms);
    let line = format!("{}: failed {} times, set aside at {at}: {error}", event.id, event.failures);
    output::print(&match what {
        Some(what) => format!("{what}: {line}"),
        None => line,
    })
}

fn backlog_of(backlog: &Backlog, now: Duration, json: bool) -> std::io::Result<()> {
    let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    let lag_ms = backlog.lag_ms(now_ms);
    if json {
        let mut value = json!(backlog);
        value["lag_ms"] = json!(lag_ms);
        return output::print_json(&value);
    }
    let Backlog { events, queues, blocked, dead, .. } = backlog;
    output::print(&format!(
        "{events} events of {queues} owners wait, the oldest for {lag_ms} ms; {blocked} owners wait for a dead letter; \
         {dead} dead letters"
    ))
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
