//! Operations in one transaction.
//!
//! Some documents may have to be unchanged.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;
use serde_json::Value;
use txn_core::Answer;
use txn_outbox::http::HttpRequest;
use txn_requests::{Emit, Operation, Target};

use super::plan::{Plan, Written};
use super::prediction::predict;
use super::read::{Address, Missing, open_all};
use crate::access::rights::Verb;
use crate::asked::Asked;
use crate::backend::Backend;
use crate::http::problem::{Code, Problem};
use crate::http::reply::Reply;
use crate::systems::events::Events;
use crate::systems::http_requests::{self, AfterCommit};
use crate::systems::locks::{Conditions, HeldLock};

/// The body of a transaction, with the documents that the client has read.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Commit {
    #[serde(default)]
    reads: Vec<TokenRead>,
    #[serde(default)]
    operations: Vec<Operation>,
    #[serde(default, deserialize_with = "txn_lock::exact::deserialize")]
    metadata: Option<Value>,
    /// The events that exist only if the commit succeeds.
    #[serde(default)]
    events: Vec<Emit>,
    /// The HTTP requests that are sent after the commit.
    #[serde(default)]
    after_commit: Vec<HttpRequest>,
    /// The locks that have to be held under these tokens.
    #[serde(default)]
    locks: Vec<HeldLock>,
    /// The reservations of reads for update.
    #[serde(default)]
    reservations: Vec<String>,
}

impl Commit {
    fn has_effects(&self) -> bool {
        let Self { operations, events, after_commit, .. } = self;
        !operations.is_empty() || !events.is_empty() || !after_commit.is_empty()
    }
}

/// A document that the client has read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenRead {
    target: Target,
    token: String,
}

/// The body of a request with events alone.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Emitted {
    events: Vec<Emit>,
}

/// Stores events.
pub(crate) async fn emit(backend: &Backend, asked: &mut Asked) -> Result<Reply, Problem> {
    let Emitted { events } = asked.json()?;
    if events.is_empty() {
        return Err(Problem::new(Code::Invalid, "the request has no events"));
    }
    run(backend, asked, Commit { events, ..Commit::default() }).await
}

/// Carries out operations, if documents are as the client has read them.
pub(crate) async fn commit(backend: &Backend, asked: &mut Asked) -> Result<Reply, Problem> {
    let commit: Commit = asked.json()?;
    if commit.reads.is_empty() && !commit.has_effects() {
        let detail = "the request has no reads, no operations, no events and no HTTP requests";
        return Err(Problem::new(Code::Invalid, detail));
    }
    run(backend, asked, commit).await
}

async fn run(backend: &Backend, asked: &mut Asked, commit: Commit) -> Result<Reply, Problem> {
    let wait_for = asked.parameters.take_wait_for()?;
    asked.finish_parameters()?;
    // The time of the reservations begins again, until the commit passes them on.
    let Commit { metadata, events, after_commit, locks, .. } = &commit;
    let joins_groups =
        metadata.is_none() && events.is_empty() && after_commit.is_empty() && locks.is_empty();
    let update = backend.reservations.take(&commit.reservations, joins_groups)?;
    admit(backend, asked, &commit).await?;
    let Commit { reads, operations, events, after_commit, locks, metadata, .. } = commit;
    let locks = Conditions::prepare(backend, asked, &locks).await?;
    let events = Events::prepare(backend, asked, events).await?;
    let after_commit = AfterCommit::prepare(backend, after_commit).await?;
    let (targets, tokens): (Vec<_>, Vec<_>) =
        reads.into_iter().map(|read| (read.target, read.token)).unzip();
    let addresses = open_all(backend, &asked.caller, targets.into_iter(), Missing::Create).await?;
    let written = Written::of(backend, &operations);
    let prepared = backend.operations.prepare(operations).await?;
    let plan = Plan { addresses, tokens, prepared, written, events, after_commit, locks };
    if update.is_wanted()
        && let Some(predicted) = predict(backend, &plan, &update).await
    {
        update.pass_on(predicted);
    }
    update.wait_for_outcomes().await;
    let options = backend.options().with_wait_for(wait_for);
    let options = options.with_metadata(metadata.map(|metadata| metadata.to_string()));
    let (plan, update, is_refused) = (&plan, &update, &AtomicBool::new(false));
    let budget = &asked.budget;
    let run = backend.run(asked.key.as_ref(), &options, async |tx| {
        is_refused.store(false, Ordering::Release);
        let answer = plan.run(tx, update, budget).await;
        is_refused
            .store(matches!(&answer, Ok(Answer::Commit(it)) if it.is_refusal()), Ordering::Release);
        update.enter_group().await;
        answer
    });
    let answered = run.await;
    // The answer of a repetition says nothing about the contents now.
    if answered.as_ref().is_ok_and(Reply::is_of_transaction) {
        update.succeed(plan.addresses.iter().filter_map(Address::key).collect());
    }
    match answered {
        // A repetition receives the same body, and does not know the tid of the first run.
        Ok(reply) if asked.key.is_some() => Ok(reply),
        Ok(reply) => Ok(reply.with_tid()),
        // The tid of a refusal that may be committed would stand for the operations.
        Err(unknown) if unknown.code() == Code::Unknown && is_refused.load(Ordering::Acquire) => {
            let detail = "documents have changed since they were read";
            Err(Problem::new(Code::Conflict, detail))
        }
        Err(problem) => Err(problem),
    }
}

/// Checks the rights of a commit, and opens its collections.
///
/// The collections are those of the operations.
async fn admit(backend: &Backend, asked: &Asked, commit: &Commit) -> Result<(), Problem> {
    let Commit { reads, operations, events, after_commit, locks, .. } = commit;
    let most = backend.config.max_documents;
    let largest = operations.len().max(events.len()).max(after_commit.len()).max(locks.len());
    if largest > most {
        let detail =
            format!("the request has more than {most} operations, events, HTTP requests or locks");
        return Err(Problem::new(Code::TooLarge, detail));
    }
    // A refused request creates no collection.
    http_requests::check_rights(asked, after_commit)?;
    http_requests::admit(backend, after_commit)?;
    let caller = &asked.caller;
    let targets = operations.iter().map(Operation::target);
    for target in targets.chain(reads.iter().map(|read| &read.target)) {
        asked.named.documents(&target.collection, 1);
    }
    for read in reads {
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
    Ok(())
}
