//! Verbs on the outbox and on the locks of `txn-lock`.

use std::collections::BTreeMap;

use serde_json::json;
use txn_cli::time_of;
use txn_core::Domain;
use txn_lock::{Holder, LockConfig, LockService};
use txn_outbox::{DeadLetter, DeadLetters, EventSource, Outbox, OutboxConfig, OutboxError};
use txn_serve::operator::{
    backlog_json, dead_letter_json, dead_letters_json, next_step_of_backlog,
};

use super::hints::cut;
use super::need_system;
use crate::answer::{Answer, Exit, Failure};
use crate::args::{Conditions, Dead, Lock, Which};
use crate::selection::Selection;

const DRAIN: std::time::Duration = std::time::Duration::from_secs(10);

pub(super) async fn backlog(domain: &Domain) -> Result<Answer, Failure> {
    need_system(domain, "outbox").await?;
    let source = Outbox::open(domain, OutboxConfig::default()).await?.source();
    let backlog = source.backlog().await?;
    let now_ms = domain.admin().overview().await?.now_ms;
    let (lag_ms, next) = (backlog.lag_ms(now_ms), next_step_of_backlog(&backlog));
    let text = format!(
        "{} events of {} keys wait, the oldest for {lag_ms} ms; {} keys wait for a dead letter; {} dead letters.\n\
         Next: {next}.",
        backlog.events, backlog.queues, backlog.blocked, backlog.dead
    );
    let json = backlog_json(&backlog, now_ms);
    Ok(Answer::new(Exit::well_if(backlog.dead == 0), text, json))
}

pub(super) async fn dead(domain: &Domain, what: Dead, limit: usize) -> Result<Answer, Failure> {
    need_system(domain, "outbox").await?;
    let source = Outbox::open(domain, OutboxConfig::default()).await?.source();
    let now_ms = domain.admin().overview().await?.now_ms;
    match what {
        Dead::List(Conditions { conditions }) => {
            list(&*source, &Selection::new(conditions, now_ms), limit).await
        }
        Dead::Retry(which) => change(&*source, which, now_ms, false).await,
        Dead::Drop(which) => change(&*source, which, now_ms, true).await,
    }
}

/// The selected dead letters.
async fn letters(source: &dyn EventSource, selection: &Selection) -> Result<DeadLetters, Failure> {
    let mut dead = source.dead_letters().await?;
    selection.apply(&mut dead);
    Ok(dead)
}

async fn list(
    source: &dyn EventSource,
    selection: &Selection,
    limit: usize,
) -> Result<Answer, Failure> {
    let dead = letters(source, selection).await?;
    let json = dead_letters_json(&dead, limit);
    let DeadLetters { letters, newer, .. } = dead;
    let mut text: String =
        letters.iter().take(limit).map(|letter| line(letter, None) + "\n").collect();
    text += &of_newer(&newer);
    text += &match letters.is_empty() && newer.is_empty() {
        true => format!("No dead letter{selection}."),
        false => {
            "Next: mend the cause, then `txn dead retry ID`; or give it up: `txn dead drop ID`."
                .to_owned()
        }
    };
    text += &cut(letters.len() > limit, limit);
    Ok(Answer::new(Exit::well_if(letters.is_empty() && newer.is_empty()), text, json))
}

/// Retries or drops dead letters: one of them, or all that are selected.
///
/// A failure for good of one dead letter does not stop the rest.
async fn change(
    source: &dyn EventSource,
    which: Which,
    now_ms: u64,
    drops: bool,
) -> Result<Answer, Failure> {
    let Which { id, conditions: Conditions { conditions }, dry_run, all: _ } = which;
    let many = id.is_none();
    let selection = Selection::new(conditions, now_ms);
    let (letters, newer) = match id {
        Some(id) => (vec![source.dead_letter(&id).await?], BTreeMap::new()),
        None => {
            let dead = letters(source, &selection).await?;
            (dead.letters, dead.newer)
        }
    };
    let mut exit = Exit::well_if(newer.is_empty());
    let (mut text, mut rows) = (String::new(), Vec::new());
    text += &format!("{} dead letters{selection}:\n", letters.len());
    let mut end =
        if dry_run { "Nothing was changed. Next: repeat it without --dry-run." } else { "Done." };
    for letter in &letters {
        let id = &letter.event.id;
        let (what, done) = match (dry_run, drops) {
            (true, true) => ("would be dropped", Ok(())),
            (true, false) => ("would be tried again", Ok(())),
            (false, _) if !is_still(source, &selection, id).await => continue,
            (false, true) => ("dropped", source.discard(id).await),
            (false, false) => ("to be tried again", source.retry(id).await),
        };
        match done {
            Ok(()) => {
                text += &(line(letter, Some(what)) + "\n");
                rows.push(dead_letter_json(letter, Some(what)));
            }
            // Another process did it in the meantime.
            Err(OutboxError::NotFound(_)) if many => {}
            Err(error) if many => {
                exit = Exit::NotWell;
                text += &format!("left: {id}: {error}\n");
                rows.push(json!({ "id": id, "action": "left", "why": error.to_string() }));
                if error.is_transient_or_unknown() {
                    end = "Stopped at this error. Next: repeat it.";
                    break;
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    text += &of_newer(&newer);
    text += end;
    let json = json!({ "dry_run": dry_run, "changed": rows, "newer_format": newer });
    Ok(Answer::new(exit, text, json))
}

/// Whether a dead letter is still selected: it may have died again, for another reason.
///
/// A dead letter that cannot be read is left to the call that changes it.
async fn is_still(source: &dyn EventSource, selection: &Selection, id: &str) -> bool {
    if selection.is_empty() {
        return true;
    }
    match source.dead_letter(id).await {
        Ok(letter) => selection.holds(&letter),
        Err(_) => true,
    }
}

/// The dead letters that only a newer program can read.
fn of_newer(newer: &BTreeMap<String, u32>) -> String {
    let line = |(id, format): (&String, &u32)| {
        format!(
            "{id}: has the format {format}, which this version does not know: use the newer one\n"
        )
    };
    newer.iter().map(line).collect()
}

fn line(letter: &DeadLetter, what: Option<&str>) -> String {
    let DeadLetter { event, error, died_ms, .. } = letter;
    let at = time_of(*died_ms);
    let line = format!("{}: failed {} times, set aside at {at}: {error}", event.id, event.failures);
    match what {
        Some(what) => format!("{what}: {line}"),
        None => line,
    }
}

pub(super) async fn lock(domain: &Domain, what: Lock, limit: usize) -> Result<Answer, Failure> {
    need_system(domain, "locks").await?;
    let service = LockService::open(domain, LockConfig::default()).await?;
    let done = on_locks(&service, what, limit).await;
    service.shutdown(DRAIN).await;
    done
}

async fn on_locks(service: &LockService, what: Lock, limit: usize) -> Result<Answer, Failure> {
    match what {
        Lock::Ls => {
            let mut locks = service.list().await?;
            let truncated = locks.len() > limit;
            locks.truncate(limit);
            let held = locks.iter().filter_map(|lock| Some((lock, lock.holder.as_ref()?)));
            let mut text: String = held
                .map(|(lock, holder)| {
                    format!("{}: token {}, {}\n", lock.name(), lock.token, of(holder))
                })
                .collect();
            if text.is_empty() {
                text = "No lock is held.".to_owned();
            }
            text += &cut(truncated, limit);
            let json = json!({ "locks": locks, "truncated": truncated });
            Ok(Answer::new(Exit::Well, text, json))
        }
        Lock::Break { category, id, dry_run } => {
            let holder = match dry_run {
                true => {
                    let locks = service.list().await?;
                    locks
                        .into_iter()
                        .find(|lock| lock.name().category() == category && lock.name().id() == id)
                        .and_then(|lock| lock.holder)
                }
                false => service.break_lock(&category, &id).await?,
            };
            let text = match (&holder, dry_run) {
                (Some(holder), false) => format!("Taken from {}.", of(holder)),
                (Some(holder), true) => format!("Would be taken from {}.", of(holder)),
                (None, _) => "No process held it.".to_owned(),
            };
            Ok(Answer::new(Exit::Well, text, json!({ "dry_run": dry_run, "broken": holder })))
        }
    }
}

fn of(holder: &Holder) -> String {
    format!("{} since {}", holder.name, time_of(holder.since_ms))
}
