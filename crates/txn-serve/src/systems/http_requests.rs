//! HTTP requests that the gateway sends after the commit of a transaction.

use hyper::StatusCode;
use txn_core::Transaction;
use txn_outbox::OutboxError;
use txn_outbox::http::{HttpRequest, HttpRequests};

use super::opened::System;
use crate::access::rights::Verb;
use crate::asked::Asked;
use crate::backend::Backend;
use crate::http::problem::{Code, Problem};
use crate::http::reply::Reply;

/// The validated HTTP requests of a commit. `None` without any.
#[derive(Debug)]
pub(crate) struct AfterCommit(Option<(HttpRequests, Vec<HttpRequest>)>);

impl AfterCommit {
    /// Checks admitted requests. The first request opens the outbox.
    pub(crate) async fn prepare(
        backend: &Backend,
        mut requests: Vec<HttpRequest>,
    ) -> Result<Self, Problem> {
        if requests.is_empty() {
            return Ok(Self(None));
        }
        bind_keys(&mut requests);
        let http = HttpRequests::new(backend.systems.outbox().await?);
        for (number, request) in requests.iter().enumerate() {
            let checked = http.check(request);
            checked.map_err(|error| of_number(Problem::from(error), number))?;
        }
        Ok(Self(Some((http, requests))))
    }

    /// Stores the requests in a transaction. Returns their ids.
    pub(crate) async fn store(&self, tx: &Transaction) -> Result<Vec<String>, OutboxError> {
        let Some((http, requests)) = &self.0 else { return Ok(Vec::new()) };
        let mut ids = Vec::with_capacity(requests.len());
        for request in requests {
            ids.push(http.after_commit(tx, request).await?);
        }
        Ok(ids)
    }
}

/// Refuses requests that this gateway never sends.
///
/// The rights come first: a refusal must not tell the destinations.
pub(crate) fn admit(backend: &Backend, requests: &[HttpRequest]) -> Result<(), Problem> {
    let Some(config) = &backend.config.http_requests else {
        return match requests.is_empty() {
            true => Ok(()),
            false => {
                let detail = "this gateway sends no HTTP requests: start it with `--destination`";
                Err(Problem::new(Code::Unsupported, detail))
            }
        };
    };
    for (number, request) in requests.iter().enumerate() {
        let admitted = config.admit(request).map_err(Problem::from);
        admitted.map_err(|problem| of_number(problem, number))?;
    }
    Ok(())
}

/// Binds the key of each request to its origin.
///
/// A queue that waits for one origin thus delays no request of another caller to another origin.
pub(crate) fn bind_keys(requests: &mut [HttpRequest]) {
    for request in requests {
        if let (Some(origin), Some(key)) = (request.origin(), &request.key) {
            request.key = Some(format!("{origin}#key:{key}"));
        }
    }
}

/// Refuses requests to origins that the caller may not call.
pub(crate) fn check_rights(asked: &Asked, requests: &[HttpRequest]) -> Result<(), Problem> {
    requests.iter().try_for_each(|request| {
        let origin = request.origin().unwrap_or_default();
        asked.named.collection(&origin);
        asked.caller.need(Verb::Call, &origin)
    })
}

fn of_number(problem: Problem, number: usize) -> Problem {
    problem.within(&format!("HTTP request {number}"))
}

/// Shows the result of the last call of an HTTP request.
pub(crate) async fn result(backend: &Backend, asked: &mut Asked) -> Result<Reply, Problem> {
    asked.finish_parameters()?;
    asked.caller.need_any(&[Verb::Call])?;
    backend.systems.need(System::HttpResults).await?;
    let found = backend.systems.http_results().await?.get(asked.route.value(0)).await?;
    // The refusal of another caller's result would name its origin.
    let found = found.filter(|found| asked.caller.may(Verb::Call, &found.to));
    let missing = || Problem::new(Code::NotFound, "no call of this HTTP request is noted");
    let found = found.ok_or_else(missing)?;
    let body = serde_json::to_value(&found);
    let body = body.map_err(|error| Problem::new(Code::Damaged, error.to_string()))?;
    Ok(Reply::json(StatusCode::OK, &body))
}
