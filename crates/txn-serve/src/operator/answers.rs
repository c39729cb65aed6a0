//! The views as answers of the gateway.

use hyper::StatusCode;
use txn_core::ErrorKind;
use txn_core::admin::TransactionState;

use super::contention::{MOST_MINUTES, compared_waits, hot_documents, past_waits};
use super::findings::{hanging_json, look};
use super::status::status;
use super::views::{self, TransactionFilter, document_json, transaction_json, waiters_of};
use crate::access::rights::Verb;
use crate::asked::Asked;
use crate::backend::Backend;
use crate::http::problem::{Code, Problem};
use crate::http::reply::Reply;
use crate::http::route::Work;

/// The number of rows of a list without `limit`.
const USUAL: u64 = 100;

/// The least age of what hangs without `older`, in seconds.
const USUAL_AGE: u64 = 30;

/// The largest number of rows of a list.
pub(crate) const MOST: u64 = 10_000;

/// Answers a request of an operator. The JSON is that of the command `txn` with `--json`.
pub(crate) async fn answer(backend: &Backend, asked: &mut Asked) -> Result<Reply, Problem> {
    asked.caller.need_any(&[Verb::Operate])?;
    let limit = take_limit(asked)?;
    let domain = &backend.domain;
    let reply = match asked.route.work {
        Work::DomainStatus => {
            asked.finish_parameters()?;
            let status = status(domain, backend.config.servers.as_ref(), limit).await?;
            Reply::json(StatusCode::OK, &status.json(None))
        }
        Work::Hanging => {
            let older = asked.parameters.take_number("older")?.unwrap_or(USUAL_AGE);
            asked.finish_parameters()?;
            let findings = look(domain, older.saturating_mul(1_000), limit).await?;
            Reply::json(StatusCode::OK, &hanging_json(&findings))
        }
        Work::Transactions => {
            let which = filter(asked)?;
            asked.finish_parameters()?;
            Reply::json(StatusCode::OK, &views::transactions(domain, &which, limit).await?)
        }
        Work::Locks => {
            let waiting = asked.parameters.take_flag("waiting")?.unwrap_or(false);
            asked.finish_parameters()?;
            match waiting {
                true => Reply::json(StatusCode::OK, &views::waiters(domain, limit).await?),
                false => Reply::json(StatusCode::OK, &domain.admin().locks(limit).await?),
            }
        }
        Work::Hot => {
            let minutes = take_minutes(asked, "minutes")?;
            asked.finish_parameters()?;
            Reply::json(StatusCode::OK, &hot_documents(domain, minutes, limit).await?)
        }
        Work::Processes => {
            asked.finish_parameters()?;
            Reply::json(StatusCode::OK, &views::processes(domain, limit).await?)
        }
        Work::Waits => history(backend, asked, limit).await?,
        Work::TransactionReport => {
            asked.finish_parameters()?;
            let tid = asked.tid()?;
            let report = domain.admin().transaction(tid, limit).await?;
            Reply::json(StatusCode::OK, &transaction_json(&report))
        }
        _ => document(backend, asked).await?,
    };
    Ok(reply)
}

/// Answers with past waits, or with two ranges of them.
async fn history(backend: &Backend, asked: &mut Asked, limit: usize) -> Result<Reply, Problem> {
    let minutes = take_minutes(asked, "minutes")?;
    let against = take_minutes(asked, "against")?;
    asked.finish_parameters()?;
    let domain = &backend.domain;
    match (minutes, against) {
        (Some(minutes), Some(against)) if against >= minutes => {
            let compared = compared_waits(domain, minutes, against, limit).await?;
            Ok(Reply::json(StatusCode::OK, &compared))
        }
        (_, Some(_)) => {
            let detail = "against needs minutes, and is at least minutes";
            Err(Problem::new(Code::Invalid, detail))
        }
        (minutes, None) => {
            Ok(Reply::json(StatusCode::OK, &past_waits(domain, minutes, limit).await?))
        }
    }
}

/// Takes a number of minutes.
fn take_minutes(asked: &mut Asked, name: &str) -> Result<Option<u64>, Problem> {
    match asked.parameters.take_number(name)? {
        Some(minutes) if !(1..=MOST_MINUTES).contains(&minutes) => {
            Err(Problem::new(Code::Invalid, format!("{name} is not 1 to {MOST_MINUTES}")))
        }
        minutes => Ok(minutes),
    }
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
    let waiters = waiters_of(&backend.domain, &report.document).await?;
    Ok(Reply::json(StatusCode::OK, &document_json(&report, &waiters)))
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
