//! Atomic bulks.

use std::time::Instant;

use hyper::StatusCode;
use serde_json::{Value, json};
use txn_core::Answer;
use txn_lock::instance::random;

use super::action::{Defaults, parse_bulk};
use super::apply::{Done, Fault, Planned, carry_out};
use crate::access::rights::Verb;
use crate::asked::Asked;
use crate::backend::Backend;
use crate::http::problem::{Code, Problem};
use crate::http::reply::Reply;
use crate::http::route::Work;
use crate::http::shape::Shape;

/// Carries out the actions of a bulk in one transaction.
pub(crate) async fn bulk(backend: &Backend, asked: &mut Asked) -> Result<Reply, Problem> {
    let started = Instant::now();
    let is_of_index = asked.route.work == Work::BulkOf;
    let index = is_of_index.then(|| asked.route.value(0).to_owned());
    let wait_for = asked.parameters.take_refresh()?;
    let routing = asked.parameters.take("routing");
    asked.finish_parameters()?;
    let max_actions = backend.config.max_documents;
    let defaults = Defaults { index: index.as_deref(), routing: routing.as_deref(), max_actions };
    let body = asked.text()?;
    let actions = parse_bulk(body, defaults, || random(&backend.domain))?;
    for action in &actions {
        asked.named.documents(&action.index, 1);
        asked.caller.need(Verb::Write, &action.index)?;
    }
    let creating = actions.iter().filter(|action| action.change.creates());
    let names = creating.map(|action| &*action.index).collect();
    backend.admit_writes(&asked.caller, names).await?;
    let mut planned = Vec::new();
    for action in actions {
        let documents = match action.change.creates() {
            true => backend.for_write(&asked.caller, &action.index).await?,
            false => backend.existing(&asked.caller, Verb::Write, &action.index).await?,
        };
        planned.push(Planned { action, documents });
    }
    let options = backend.options().with_wait_for(wait_for);
    let (planned, domain, budget) = (&planned, &backend.domain, &asked.budget);
    let run = backend.run(asked.key.as_ref(), &options, async |tx| {
        let results = carry_out(domain, tx, planned, budget).await?;
        let took = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(match results.iter().position(Result::is_err) {
            None => Answer::Commit(committed(planned, &results, took)),
            Some(first) => Answer::Refuse(refused(planned, &results, first, took)),
        })
    });
    run.await
}

fn committed(planned: &[Planned<'_>], results: &[Result<Done, Fault>], took: u64) -> Reply {
    let item = |(planned, result): (&Planned<'_>, &Result<Done, Fault>)| {
        let done = result.as_ref().ok()?;
        let mut item = planned.answer(done);
        item["status"] = done.status.as_u16().into();
        Some(json!({ (planned.action.verb): item }))
    };
    let items: Vec<Value> = planned.iter().zip(results).filter_map(item).collect();
    Reply::json(StatusCode::OK, &json!({ "took": took, "errors": false, "items": items }))
}

/// The answer of a bulk that changed nothing.
///
/// Each action has an item, so that a position in the request is a position in the answer.
fn refused(
    planned: &[Planned<'_>],
    results: &[Result<Done, Fault>],
    first: usize,
    took: u64,
) -> Reply {
    let untouched = Fault::untouched();
    let item = |(planned, result): (&Planned<'_>, &Result<Done, Fault>)| {
        let fault = result.as_ref().err().unwrap_or(&untouched);
        json!({ (planned.action.verb): planned.refusal(fault) })
    };
    let items: Vec<Value> = planned.iter().zip(results).map(item).collect();
    let faults = || results.iter().filter_map(|result| result.as_ref().err());
    let unfit = |fault: &Fault| {
        matches!(fault.status, StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE)
    };
    // A repetition of a bulk that does not fit cannot succeed.
    let code = if faults().any(unfit) { Code::Invalid } else { Code::Refused };
    let reason = faults().next().map_or("", |fault| &fault.reason);
    let detail = format!("action {first} was refused, and nothing was changed: {reason}");
    let problem = Problem::new(code, detail);
    let problem = problem.beside("took", took).beside("errors", true).beside("items", items);
    Reply::problem(&problem, Shape::Server)
}
