//! Commands on derived owners and on their events.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use txn_bank::{Bank, BankError, OWNERS, Owner, Rebuilt};
use txn_core::clock::Clock;
use txn_outbox::http::{self, HttpConfig};
use txn_outbox::{
    Backlog, DeadLetter, DeadLetters, EventSource, OutboxError, Processor, ProcessorConfig,
};

use crate::cli::notify::allowed;
use crate::cli::{DRAIN, asked_to_stop};
use crate::console::args::{self, Command, Global, Which};
use crate::console::failure::{Exit, Failure};
use crate::console::{output, said};

/// The time without progress after which a worker gives up.
const STANDSTILL: Duration = Duration::from_secs(60);

/// A command with validated input, before the store is opened.
pub(crate) enum Asked {
    Owner(String),
    Derive { at_most: Option<Duration> },
    Dispatch { may: Box<HttpConfig>, at_most: Option<Duration> },
    Events,
    Rebuild,
    List { topic: Option<String> },
    Change { which: Which, drops: bool, topic: Option<String> },
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
            Command::Dispatch { allow, allow_address, seconds } => Self::Dispatch {
                may: Box::new(allowed(&allow, &allow_address)?),
                at_most: seconds.map(Duration::from_secs),
            },
            Command::DeadLetters { topic, what: None } => Self::List { topic },
            Command::DeadLetters { topic, what: Some(args::DeadLetters::Retry(which)) } => {
                Self::Change { which, drops: false, topic }
            }
            Command::DeadLetters { topic, what: Some(args::DeadLetters::Drop(which)) } => {
                Self::Change { which, drops: true, topic }
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
        Asked::Derive { at_most } => {
            let events = bank.events()?;
            let processor = bank.derive_owners(ProcessorConfig::default()).await?;
            handle(bank, (&*events, OWNERS), processor, at_most, json).await
        }
        Asked::Dispatch { may, at_most } => {
            let events = bank.outbox().await?.source();
            let processor = bank.dispatch(ProcessorConfig::default(), *may).await?;
            handle(bank, (&*events, http::TOPIC), processor, at_most, json).await
        }
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
        Asked::List { topic } => {
            let dead = dead_letters(&*bank.events()?, topic.as_deref()).await?;
            let is_none = dead.letters.is_empty() && dead.newer.is_empty();
            let exit = if is_none { Exit::Done } else { Exit::Found };
            let told = dead.letters.iter().try_for_each(|letter| tell(letter, None, json));
            said(told.and_then(|()| tell_newer(&dead.newer, json)), exit)
        }
        Asked::Change { which, drops, topic } => {
            change(bank, which, (drops, topic.as_deref()), json).await
        }
    }
}

fn told_of(rebuilt: &Rebuilt) -> std::io::Result<()> {
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
        () = asked_to_stop() => Ok(true),
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
    said(written, Exit::Done)
}

/// Waits for the end of a worker. Returns whether all its work is done.
async fn until_done(
    bank: &Bank,
    (events, topic): (&dyn EventSource, &str),
    at_most: Option<Duration>,
    moved: impl Fn() -> u64,
) -> Result<bool, Failure> {
    let clock: &dyn Clock = &*bank.domain().config().clock;
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

/// The dead letters, optionally of one topic.
async fn dead_letters(
    events: &dyn EventSource,
    topic: Option<&str>,
) -> Result<DeadLetters, Failure> {
    let mut dead = events.dead_letters().await.map_err(BankError::from)?;
    dead.letters.retain(|letter| is_of(topic, &letter.event.id));
    dead.newer.retain(|id, _| is_of(topic, id));
    Ok(dead)
}

fn is_of(topic: Option<&str>, id: &str) -> bool {
    topic.is_none_or(|topic| id.strip_prefix(topic).is_some_and(|rest| rest.starts_with('/')))
}

/// Retries or discards dead letters: one of them, or all.
///
/// A failure of one dead letter does not stop the rest.
async fn change(
    bank: &Bank,
    which: Which,
    (drops, topic): (bool, Option<&str>),
    json: bool,
) -> Result<Exit, Failure> {
    let events = bank.events()?;
    let Which { id, all, dry_run } = which;
    let (letters, newer) = match id.filter(|_| !all) {
        Some(id) => match events.dead_letter(&id).await {
            Ok(_) if !is_of(topic, &id) => {
                return Err(Failure::refused(format!(
                    "the dead letter {id:?} is of another topic"
                )));
            }
            Err(OutboxError::NotFound(_)) => {
                return Err(Failure::refused(format!("there is no dead letter {id:?}")));
            }
            letter => (vec![letter.map_err(BankError::from)?], BTreeMap::new()),
        },
        None => {
            let dead = dead_letters(&*events, topic).await?;
            (dead.letters, dead.newer)
        }
    };
    let mut exit = if newer.is_empty() { Exit::Done } else { Exit::Found };
    for letter in &letters {
        let id = &letter.event.id;
        let (what, done) = match (dry_run, drops) {
            (true, true) => ("would be dropped", Ok(())),
            (true, false) => ("would be tried again", Ok(())),
            (false, true) => ("dropped", events.discard(id).await),
            (false, false) => ("to be tried again", events.retry(id).await),
        };
        match done {
            Ok(()) => drop(said(tell(letter, Some(what), json), Exit::Done)?),
            // Another process did it in the meantime.
            Err(OutboxError::NotFound(_)) if all => {}
            Err(error) if all && !error.is_transient_or_unknown() => {
                exit = Exit::Found;
                said(tell_left(id, &error, json), Exit::Done)?;
            }
            Err(error) => return Err(BankError::from(error).into()),
        }
    }
    said(tell_newer(&newer, json), exit)
}

/// Prints a dead letter that stays, and the reason.
fn tell_left(id: &str, why: &OutboxError, json: bool) -> std::io::Result<()> {
    match json {
        true => output::print_json(&json!({ "id": id, "action": "left", "why": why.to_string() })),
        false => output::print(&format!("left: {id}: {why}")),
    }
}

/// Prints the dead letters that only a newer program can read.
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
        "{events} events of {queues} keys wait, the oldest for {lag_ms} ms; {blocked} keys wait for a dead letter; \
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
