//! The outcome of a transaction by its tid.

use hyper::StatusCode;
use serde_json::json;
use txn_core::{ErrorKind, TransactionOutcome};

use crate::access::rights::Verb;
use crate::asked::Asked;
use crate::backend::Backend;
use crate::http::problem::Problem;
use crate::http::reply::Reply;

/// Finds the outcome. An undecided transaction without a sign of life is aborted.
pub(crate) async fn outcome(backend: &Backend, asked: &mut Asked) -> Result<Reply, Problem> {
    asked.finish_parameters()?;
    // A tid names no collection. Each writer may need the outcome of its transaction.
    asked.caller.need_any(&[Verb::Write, Verb::Operate])?;
    let tid = asked.tid()?;
    let found = backend.domain.outcome(tid).await;
    let tid = tid.to_string();
    let body = match found {
        Ok(TransactionOutcome::Committed { commit_version }) => {
            json!({ "tid": tid, "outcome": "committed", "commit_version": commit_version.to_string() })
        }
        Ok(TransactionOutcome::Aborted) => json!({ "tid": tid, "outcome": "aborted" }),
        Ok(TransactionOutcome::Forgotten) => json!({ "tid": tid, "outcome": "forgotten" }),
        // The transaction still runs.
        Err(error) if error.kind() == ErrorKind::Conflict => {
            json!({ "tid": tid, "outcome": "unknown" })
        }
        Err(error) => return Err(error.into()),
        // An outcome of a later version.
        Ok(_) => json!({ "tid": tid, "outcome": "unknown" }),
    };
    Ok(Reply::json(StatusCode::OK, &body))
}
