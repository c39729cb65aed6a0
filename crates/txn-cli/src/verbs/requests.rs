//! Verbs on submitted requests.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use txn_cli::time_of;
use txn_core::Domain;
use txn_outbox::{Outbox, OutboxConfig};
use txn_requests::{Request, Requests, RequestsConfig, Selection, State, Status};
use txn_serve::operator::{next_step_of_request, request_json, request_row_json, requests_json};

use super::hints::cut;
use super::init::read;
use super::{has_system, need_system};
use crate::answer::{Answer, Exit, Failure};
use crate::args;

const DRAIN: Duration = Duration::from_secs(10);

pub(super) async fn requests(
    domain: &Domain,
    what: args::Requests,
    limit: usize,
) -> Result<Answer, Failure> {
    need_system(domain, "requests").await?;
    let requests = Requests::open(domain, RequestsConfig::default()).await?;
    let done = Box::pin(on(&requests, what, limit)).await;
    if !requests.shutdown(DRAIN).await {
        tracing::warn!("not everything is done yet: another process does the rest");
    }
    done
}

async fn on(requests: &Requests, what: args::Requests, limit: usize) -> Result<Answer, Failure> {
    let status = match what {
        args::Requests::Ls { application } => {
            return list(requests, application.as_deref(), limit).await;
        }
        args::Requests::Stuck { older } => {
            return stuck(requests, Duration::from_secs(older), limit).await;
        }
        args::Requests::Status { key } => requests.status(&key).await?,
        args::Requests::Cancel { key, why } => requests.cancel(&key, &why).await?,
        args::Requests::Release { key } => requests.release(&key).await?,
    };
    Ok(answer(&status))
}

/// Lists the requests that need an operator.
async fn stuck(requests: &Requests, older: Duration, limit: usize) -> Result<Answer, Failure> {
    let mut stuck = requests.stuck(older).await?;
    let exit = Exit::well_if(stuck.is_empty());
    let truncated = stuck.len() > limit;
    stuck.truncate(limit);
    let mut text: String =
        stuck.iter().map(|(status, why)| format!("{}: {why}\n", line(status))).collect();
    text += match stuck.is_empty() {
        true => "No request is stuck.",
        false => {
            "Next: check that a processor of the application runs; after a repair: `txn requests release KEY`; to give \
             up: `txn requests cancel KEY`."
        }
    };
    text += &cut(truncated, limit);
    let rows: Vec<Value> = stuck
        .iter()
        .map(|(status, why)| json!({ "request": request_row_json(status), "why": why.to_string() }))
        .collect();
    Ok(Answer::new(exit, text, json!({ "stuck": rows, "truncated": truncated })))
}

/// Lists the requests that are open or set aside.
async fn list(
    requests: &Requests,
    application: Option<&str>,
    limit: usize,
) -> Result<Answer, Failure> {
    let states = State::OPEN.into_iter().chain([State::Quarantined]);
    let selection = Selection::default().with_states(states).with_application_name(application);
    let found = requests.list(&selection).await?;
    let mut text: String = found.iter().take(limit).map(|status| line(status) + "\n").collect();
    text += match found.is_empty() {
        true => "No request is open.",
        false => "Next: `txn requests status KEY`, or `txn requests stuck`.",
    };
    let truncated = found.len() > limit;
    text += &cut(truncated, limit);
    Ok(Answer::new(Exit::Well, text, requests_json(&found, limit)))
}

/// Submits the request of a file, or executes it.
pub(super) async fn run(
    domain: &Domain,
    file: &Path,
    id: &str,
    execute: bool,
) -> Result<Answer, Failure> {
    let text = read(file)?;
    let request: Request = serde_json::from_str(&text)
        .map_err(|error| Failure::invalid(format!("{} is no request: {error}", file.display())))?;
    let mut config = RequestsConfig::default();
    if has_system(domain, "outbox").await? {
        let outbox = Outbox::open(domain, OutboxConfig::default()).await?;
        config = config.with_outbox(Some(outbox));
    }
    let requests = Requests::open(domain, config).await?;
    let status = match execute {
        true => Box::pin(requests.execute(&request, id)).await,
        false => requests.submit(&request, id).await,
    };
    if !requests.shutdown(DRAIN).await {
        tracing::warn!("not everything is done yet: another process does the rest");
    }
    Ok(answer(&status?))
}

fn answer(status: &Status) -> Answer {
    let well = !matches!(status.state, State::RolledBack | State::Terminating | State::Quarantined);
    let next = next_step_of_request(status.state);
    let text = format!("{}\nNext: {next}.", line(status));
    Answer::new(Exit::well_if(well), text, request_json(status))
}

fn line(status: &Status) -> String {
    let at = time_of(status.times.modified_ms);
    let reason = status.reason.as_ref().map(|reason| format!("; {reason}")).unwrap_or_default();
    format!("{}: {} since {at}{reason}", status.id, status.state)
}
