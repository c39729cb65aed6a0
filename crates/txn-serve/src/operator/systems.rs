//! Views of the locks, the outbox and the submitted requests.

use serde_json::{Value, json};
use txn_lock::Known;
use txn_outbox::{Backlog, DeadLetter, DeadLetters};
use txn_requests::{State, Status};

/// The held locks as JSON.
#[must_use]
pub fn locks_json(known: &Known, limit: usize) -> Value {
    let locks: Vec<_> = known.locks.iter().take(limit).collect();
    let newer = known.newer.iter().map(|(name, format)| (name.to_string(), json!(format)));
    let newer: serde_json::Map<String, Value> = newer.collect();
    let truncated = known.locks.len() > limit;
    json!({ "locks": locks, "newer_format": newer, "truncated": truncated })
}

/// The counts of waiting events as JSON, with the next step.
#[must_use]
pub fn backlog_json(backlog: &Backlog, now_ms: u64) -> Value {
    let mut json = json!(backlog);
    json["lag_ms"] = json!(backlog.lag_ms(now_ms));
    json["next"] = json!(next_step_of_backlog(backlog));
    json
}

/// The next step of an operator, by the counts of waiting events.
#[must_use]
pub fn next_step_of_backlog(backlog: &Backlog) -> &'static str {
    match backlog.dead {
        0 => "nothing; if the number grows, start more processors",
        _ => "`txn dead list`",
    }
}

/// The dead letters as JSON.
#[must_use]
pub fn dead_letters_json(dead: &DeadLetters, limit: usize) -> Value {
    let rows = dead.letters.iter().take(limit).map(|letter| dead_letter_json(letter, None));
    let rows: Vec<Value> = rows.collect();
    let truncated = dead.letters.len() > limit;
    json!({ "dead_letters": rows, "newer_format": dead.newer, "truncated": truncated })
}

/// A dead letter without its payload, which may be confidential.
#[must_use]
pub fn dead_letter_json(letter: &DeadLetter, action: Option<&str>) -> Value {
    let DeadLetter { event, error, died_ms, .. } = letter;
    json!({
        "id": event.id, "topic": event.queue.topic(), "key": event.queue.key(),
        "emitted_ms": event.emitted_ms, "died_ms": died_ms, "failures": event.failures,
        "error": error, "action": action,
    })
}

/// The requests as JSON.
#[must_use]
pub fn requests_json(found: &[Status], limit: usize) -> Value {
    let rows: Vec<Value> = found.iter().take(limit).map(request_row_json).collect();
    json!({ "requests": rows, "truncated": found.len() > limit })
}

/// A request as JSON, with the next step.
#[must_use]
pub fn request_json(status: &Status) -> Value {
    let mut json = request_row_json(status);
    json["next"] = json!(next_step_of_request(status.state));
    json
}

/// A request without the contents of its documents.
#[must_use]
pub fn request_row_json(status: &Status) -> Value {
    json!({
        "id": status.id,
        "application": status.application,
        "state": status.state,
        "times": status.times,
        "processor": status.processor,
        "failures": status.failures,
        "deaths": status.deaths,
        "reason": status.reason.as_ref().map(ToString::to_string),
        "commit_version": status.commit_version,
        "operations": status.request.operations.len(),
        "reverses": status.reverses,
        "reversed_by": status.reversed_by,
    })
}

/// The next step after the state of a request.
#[must_use]
pub fn next_step_of_request(state: State) -> &'static str {
    match state {
        State::Quarantined => "mend the cause, then `txn requests release KEY`",
        State::RolledBack => "submit it again under another key, once the reason is gone",
        State::Created | State::Pending => "wait for a processor of the application",
        _ => "nothing",
    }
}
