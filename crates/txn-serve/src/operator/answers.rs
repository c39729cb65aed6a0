//! The views as answers of the gateway.

use hyper::StatusCode;
use txn_core::admin::TransactionState;
use txn_core::{AttemptId, ErrorKind};

use super::views::{self, TransactionFilter, document_json, transaction_json};
use crate::access::rights::Verb;
use crate::asked::Asked;
use crate::backend::Backend;
use crate::http::problem::{Code, Problem};
use crate::http::reply::Reply;
use crate::http::route::Work;

/// The number of rows of a list without `limit`.
const USUAL: u64 = 100;

/// The largest number of rows of a list.
pub(crate) const MOST: u64 = 10_000;

/// Answers a request of an operator. The JSON is that of the command `txn` with `--json`.
pub(crate) async fn answer(backend: &Backend, asked: &mut Asked) -> Result<Reply, Problem> {
    asked.caller.need_any(&[Verb::Operate])?;
    let limit = take_limit(asked)?;
    let domain = &backend.domain;
    let reply = match asked.route.work {
        Work::Transactions => {
            let which = filter(asked)?;
            asked.finish_parameters()?;
            Reply::json(StatusCode::OK, &views::transactions(domain, &which, limit).await?)
        }
        Work::Locks => {
            asked.finish_parameters()?;
            Reply::json(StatusCode::OK, &domain.admin().locks(limit).await?)
        }
        Work::Processes => {
            asked.finish_parameters()?;
            Reply::json(StatusCode::OK, &views::processes(domain).await?)
        }
        Work::Waits => {
            asked.finish_parameters()?;
            Reply::json(StatusCode::OK, &domain.admin().contention_of_all(limit).await?)
        }
        Work::TransactionReport => {
            asked.finish_parameters()?;
            let tid = asked.route.value(0).parse::<AttemptId>();
            let tid = tid.map_err(|_| Problem::new(Code::Invalid, "the path has no tid"))?;
            let report = domain.admin().transaction(tid, limit).await?;
            Reply::json(StatusCode::OK, &transaction_json(&report))
        }
        _ => document(backend, asked).await?,
    };
    Ok(reply)
}

/// Takes the number of rows of a list.
pub(crate) fn take_limit(asked: &mut Asked) -> Result<usize, Problem> {
    let limit = asked.parameters.take_number("limit")?.unwrap_or(USUAL);
    match (1..=MOST).contains(&limit) {
        true => Ok(usize::try_from(limit).unwrap_or(usize::MAX)),
        false => Err(Problem::new(Code::Invalid, format!("the limit is not 1 to {MOST}"))),
    }
}

async fn document(backend: &Backend, asked: &mut Asked) -> Result<Reply, Problem> {
    let routing = asked.parameters.take("routing");
    asked.finish_parameters()?;
    let (collection, id) = (asked.route.value(0), asked.route.value(1));
    asked.named.documents(collection, 1);
    let report = backend.domain.admin().document(collection, id, routing.as_deref()).await;
    let report = report.map_err(|error| match error.kind() {
        ErrorKind::Misconfigured => Problem::new(Code::NoCollection, error.to_string()),
        _ => error.into(),
    })?;
    Ok(Reply::json(StatusCode::OK, &document_json(&report)))
}

/// Takes the filter of a list of transactions.
pub(crate) fn filter(asked: &mut Asked) -> Result<TransactionFilter, Problem> {
    let state = match asked.parameters.take("state").as_deref() {
        None => None,
        Some("no-record") => Some(TransactionState::NoRecord),
        Some("pending") => Some(TransactionState::Pending),
        Some("committed") => Some(TransactionState::Committed),
        Some(_) => {
            let detail = "state is not no-record, pending or committed";
            return Err(Problem::new(Code::Invalid, detail));
        }
    };
    let older = asked.parameters.take_number("older")?;
    let label = asked.parameters.take("label");
    Ok(TransactionFilter { state, older, label })
}
