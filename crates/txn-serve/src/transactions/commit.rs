//! Operations in one transaction, with or without documents that must not have changed.

use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use txn_core::{Answer, Raw};
use txn_requests::{Operation, Request, RequestError, Target};

use super::read::{Address, Document, Missing, contents, open_all};
use crate::access::rights::Verb;
use crate::asked::Asked;
use crate::backend::Backend;
use crate::documents::fingerprint::token;
use crate::http::problem::{Code, Problem};
use crate::http::reply::Reply;
use crate::http::shape::Shape;

/// The body of a conditional commit.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Commit {
    #[serde(default)]
    reads: Vec<TokenRead>,
    #[serde(default)]
    operations: Vec<Operation>,
    metadata: Option<Value>,
}

/// A document that the client has read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenRead {
    target: Target,
    token: String,
}

/// Carries out a request: operations, with expectations among them.
pub(crate) async fn transaction(backend: &Backend, asked: &mut Asked) -> Result<Reply, Problem> {
    let request: Request = asked.json()?;
    for (name, is_used) in [
        ("application", request.application.is_some()),
        ("events", !request.events.is_empty()),
        ("after_commit", !request.after_commit.is_empty()),
    ] {
        if is_used {
            let detail = format!("the gateway does not support `{name}` of a request");
            return Err(Problem::new(Code::Unsupported, detail));
        }
    }
    if request.operations.is_empty() {
        return Err(Problem::new(Code::Invalid, "the request has no operations"));
    }
    let Request { operations, metadata, .. } = request;
    run(backend, asked, Commit { reads: Vec::new(), operations, metadata }).await
}

/// Carries out operations if documents are still as the client has read them.
pub(crate) async fn commit(backend: &Backend, asked: &mut Asked) -> Result<Reply, Problem> {
    let commit: Commit = asked.json()?;
    if commit.reads.is_empty() && commit.operations.is_empty() {
        return Err(Problem::new(Code::Invalid, "the request has no reads and no operations"));
    }
    run(backend, asked, commit).await
}

async fn run(backend: &Backend, asked: &mut Asked, commit: Commit) -> Result<Reply, Problem> {
    let wait_for = asked.parameters.take_wait_for()?;
    asked.finish_parameters()?;
    let Commit { reads, operations, metadata } = commit;
    let caller = &asked.caller;
    let targets = operations.iter().map(Operation::target);
    for target in targets.chain(reads.iter().map(|read| &read.target)) {
        asked.named.documents(&target.collection, 1);
    }
    for read in &reads {
        caller.need(Verb::Read, &read.target.collection)?;
    }
    let (conditions, writes): (Vec<&Operation>, Vec<&Operation>) =
        operations.iter().partition(|operation| matches!(operation, Operation::Expect(_)));
    for condition in conditions {
        backend.existing(caller, Verb::Read, &condition.target().collection).await?;
    }
    let names = writes.iter().map(|operation| &*operation.target().collection).collect();
    backend.admit_writes(caller, names).await?;
    for operation in writes {
        let name = &operation.target().collection;
        match operation {
            Operation::Put(_) | Operation::Insert(_) => backend.for_write(caller, name).await?,
            _ => backend.existing(caller, Verb::Write, name).await?,
        };
    }
    let (targets, tokens): (Vec<_>, Vec<_>) =
        reads.into_iter().map(|read| (read.target, read.token)).unzip();
    let addresses = open_all(backend, &asked.caller, targets.into_iter(), Missing::Create).await?;
    let prepared = backend.operations.prepare(operations).await?;
    let options = backend.options().with_wait_for(wait_for);
    let options = options.with_metadata(metadata.map(|metadata| metadata.to_string()));
    let (addresses, tokens, prepared) = (&addresses, &tokens, &prepared);
    let run = backend.run(asked.key.as_ref(), &options, async |tx| {
        let found = contents(tx, addresses).await?;
        if let Some(changed) = changed(addresses, tokens, &found) {
            return Ok(Answer::Refuse(changed));
        }
        match prepared.apply(tx).await {
            Ok(()) => {
                let body = json!({ "outcome": "committed" });
                Ok(Answer::Commit(Reply::json(StatusCode::OK, &body)))
            }
            Err(RequestError::Engine(error)) => Err(error),
            Err(refused) => Ok(Answer::Refuse(Reply::problem(&refused.into(), Shape::Problem))),
        }
    });
    Ok(run.await?.with_tid())
}

/// The answer if documents have changed: their contents and new tokens, for the next attempt.
fn changed(addresses: &[Address], tokens: &[String], found: &[Option<Raw>]) -> Option<Reply> {
    let differs = |((_, expected), found): &((&Address, &String), &Option<Raw>)| {
        token(found.as_ref().map(Raw::as_str)) != **expected
    };
    let changed = addresses.iter().zip(tokens).zip(found).filter(differs);
    let changed = changed
        .map(|((address, _), found)| Document::new(&address.target, found.as_ref()))
        .collect::<Result<Vec<_>, _>>();
    match changed {
        Ok(changed) if changed.is_empty() => None,
        Ok(changed) => {
            let detail = format!("{} documents have changed since they were read", changed.len());
            let problem = Problem::new(Code::Changed, detail);
            Some(Reply::problem_with((&problem, Shape::Problem), "changed", &changed))
        }
        Err(problem) => Some(Reply::problem(&problem, Shape::Problem)),
    }
}
