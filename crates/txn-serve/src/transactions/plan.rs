//! A validated commit, as the closure of its transaction carries it out.

use std::collections::BTreeMap;

use hyper::StatusCode;
use serde_json::json;
use txn_core::store::Key;
use txn_core::{Answer, Collection, DocumentId, Error, Raw, Transaction};
use txn_lock::LockError;
use txn_requests::{Operation, Prepared, RequestError};

use super::read::{Address, Document, contents, id_of};
use super::reservation::UpdateCommit;
use crate::backend::Backend;
use crate::documents::fingerprint::token;
use crate::http::limits::ReadBudget;
use crate::http::problem::{Code, Problem};
use crate::http::reply::Reply;
use crate::http::shape::Shape;
use crate::systems::events::Events;
use crate::systems::http_requests::AfterCommit;
use crate::systems::locks::Conditions;

/// A validated commit with its open collections.
pub(super) struct Plan {
    /// The documents that the client has read.
    pub(super) addresses: Vec<Address>,
    /// The tokens of these documents.
    pub(super) tokens: Vec<String>,
    pub(super) prepared: Prepared,
    pub(super) written: Written,
    pub(super) events: Events,
    pub(super) after_commit: AfterCommit,
    pub(super) locks: Conditions,
}

impl Plan {
    /// Carries out the commit in a transaction.
    pub(super) async fn run(
        &self,
        tx: &Transaction,
        update: &UpdateCommit,
        budget: &ReadBudget,
    ) -> Result<Answer<Reply>, Problem> {
        match self.locks.check(tx).await {
            Ok(()) => {}
            Err(lost @ LockError::Lost { .. }) => return Ok(refusal(&lost.into())),
            Err(error) => return Err(error.into()),
        }
        let addresses: Vec<&Address> = self.addresses.iter().collect();
        let found = contents(tx, &addresses, budget).await?;
        if let Some(changed) = changed(&self.addresses, &self.tokens, &found) {
            if update.follows_others() {
                // The group repeats the run after the earlier commits, on the same documents.
                self.written.touch(tx).await?;
            }
            // A commit and no error, because a group does not run a failed closure again.
            return Ok(Answer::Commit(changed));
        }
        match self.prepared.apply(tx).await {
            Ok(()) => {}
            Err(RequestError::Engine(error)) => return Err(error.into()),
            Err(refused) => return Ok(refusal(&refused.into())),
        }
        // The error of a full queue is not stored under the key, so a repetition may succeed.
        let ids = self.events.emit(tx).await?;
        let calls = self.after_commit.store(tx).await?;
        let mut body = json!({ "outcome": "committed" });
        for (name, ids) in [("events", ids), ("after_commit", calls)] {
            if !ids.is_empty() {
                body[name] = json!(ids);
            }
        }
        Ok(Answer::Commit(Reply::json(StatusCode::OK, &body)))
    }
}

fn refusal(problem: &Problem) -> Answer<Reply> {
    Answer::Refuse(Reply::problem(problem, Shape::Problem))
}

/// The documents that the operations write, each once.
pub(super) struct Written(BTreeMap<Key, (Collection<Raw>, DocumentId)>);

impl Written {
    pub(super) fn of(backend: &Backend, operations: &[Operation]) -> Self {
        let written = operations.iter().filter(|it| !matches!(it, Operation::Expect(_)));
        let document = |operation: &Operation| {
            let target = operation.target();
            let documents = backend.operations.open_collection(&target.collection)?;
            Some((documents.key(id_of(target)), (documents, id_of(target))))
        };
        Self(written.filter_map(document).collect())
    }

    /// The documents with their collections.
    pub(super) fn documents(
        &self,
    ) -> impl Iterator<Item = (Key, (Collection<Raw>, DocumentId))> + '_ {
        self.0.iter().map(|(key, document)| (key.clone(), document.clone()))
    }

    /// Writes the documents as they are.
    ///
    /// A group repeats a run only if the run has written the same documents before.
    async fn touch(&self, tx: &Transaction) -> Result<(), Error> {
        tx.prefetch(self.0.keys().cloned()).await?;
        for (documents, id) in self.0.values() {
            match tx.get(documents, id.clone()).await? {
                Some(content) => tx.put(documents, id.clone(), &content)?,
                None => tx.delete(documents, id.clone())?,
            }
        }
        Ok(())
    }
}

/// Returns the answer if documents have changed.
///
/// The answer has the contents and new tokens of these documents, for the next attempt.
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
