//! Requests that are submitted now and executed later.

use hyper::StatusCode;
use serde::Deserialize;
use txn_requests::{Operation, Request, Selection, State, Status};

use super::http_requests;
use super::opened::System;
use crate::access::rights::Verb;
use crate::asked::Asked;
use crate::backend::Backend;
use crate::http::problem::{Code, Problem};
use crate::http::reply::Reply;
use crate::operator::answers::take_limit;
use crate::operator::{request_json, requests_json};

/// The reason of a cancellation without one.
const USUAL_REASON: &str = "by a client of the gateway";

/// The longest reason of a cancellation, in bytes.
const MOST_REASON: usize = 1_000;

/// The body of a cancellation.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cancel {
    why: Option<String>,
}

/// Stores a request under the id of the path. A repetition is the same submission.
pub(crate) async fn submit(backend: &Backend, asked: &mut Asked) -> Result<Reply, Problem> {
    asked.finish_parameters()?;
    asked.caller.need_any(&[Verb::Submit])?;
    let mut request: Request = asked.json()?;
    check_rights(asked, &request)?;
    http_requests::admit(backend, &request.after_commit)?;
    http_requests::bind_keys(&mut request.after_commit);
    for operation in &request.operations {
        // A processor opens the collections, and creates none.
        let name = &operation.target().collection;
        backend.existing(&asked.caller, verb_of(operation), name).await?;
    }
    let requests = backend.systems.requests().await?;
    let status = requests.submit(&request, asked.route.value(0)).await?;
    Ok(Reply::json(StatusCode::ACCEPTED, &request_json(&status)))
}

/// Shows the state of a request.
pub(crate) async fn status(backend: &Backend, asked: &mut Asked) -> Result<Reply, Problem> {
    asked.finish_parameters()?;
    let status = find(backend, asked).await?;
    Ok(Reply::json(StatusCode::OK, &request_json(&status)))
}

/// Rolls back a request that is not committed.
pub(crate) async fn cancel(backend: &Backend, asked: &mut Asked) -> Result<Reply, Problem> {
    asked.finish_parameters()?;
    let Cancel { why } = if asked.has_body() { asked.json()? } else { Cancel::default() };
    let why = why.unwrap_or_else(|| USUAL_REASON.to_owned());
    if why.len() > MOST_REASON || why.chars().any(char::is_control) {
        let detail = format!("`why` has at most {MOST_REASON} bytes without control characters");
        return Err(Problem::new(Code::Invalid, detail));
    }
    find(backend, asked).await?;
    let status = backend.systems.requests().await?.cancel(asked.route.value(0), &why).await?;
    Ok(Reply::json(StatusCode::OK, &request_json(&status)))
}

/// Lists the requests that are open or quarantined, as `txn requests ls` prints them.
pub(crate) async fn list(backend: &Backend, asked: &mut Asked) -> Result<Reply, Problem> {
    asked.caller.need_any(&[Verb::Operate])?;
    let limit = take_limit(asked)?;
    let application = asked.parameters.take("application");
    asked.finish_parameters()?;
    backend.systems.need(System::Requests).await?;
    let states = State::OPEN.into_iter().chain([State::Quarantined]);
    let selection = Selection::default().with_states(states);
    let selection = selection.with_application_name(application.as_deref());
    let found = backend.systems.requests().await?.list(&selection).await?;
    Ok(Reply::json(StatusCode::OK, &requests_json(&found, limit)))
}

/// Finds the request of the path.
///
/// The caller must have the right to submit such a request.
async fn find(backend: &Backend, asked: &Asked) -> Result<Status, Problem> {
    asked.caller.need_any(&[Verb::Submit])?;
    backend.systems.need(System::Requests).await?;
    let status = backend.systems.requests().await?.status(asked.route.value(0)).await?;
    check_rights(asked, &status.request)?;
    Ok(status)
}

/// Refuses a request beyond the caller's rights.
///
/// The caller must have the rights to all operations, events and HTTP requests.
fn check_rights(asked: &Asked, request: &Request) -> Result<(), Problem> {
    for operation in &request.operations {
        let name = &operation.target().collection;
        asked.named.documents(name, 1);
        asked.caller.need(verb_of(operation), name)?;
    }
    http_requests::check_rights(asked, &request.after_commit)?;
    request.events.iter().try_for_each(|event| asked.caller.need(Verb::Emit, &event.topic))
}

fn verb_of(operation: &Operation) -> Verb {
    match operation {
        Operation::Expect(_) => Verb::Read,
        _ => Verb::Write,
    }
}
