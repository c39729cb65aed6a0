//! The contents that a commit will give its documents, before the commit.

use std::collections::BTreeMap;

use txn_core::store::Key;
use txn_core::{Error, Raw, Transaction};
use txn_lock::LockError;
use txn_requests::RequestError;

use super::plan::Plan;
use super::reservation::UpdateCommit;
use crate::backend::Backend;
use crate::documents::fingerprint::token;

/// A content that a commit will give a document.
type Predicted = (Key, Option<Raw>);

/// Predicts the contents of the reserved documents.
///
/// The transaction of the prediction never commits.
///
/// The result is empty if the commit will be refused. `None` if the prediction failed or took too
/// long. The next reads then wait for the outcome of the commit.
pub(super) async fn predict(
    backend: &Backend,
    plan: &Plan,
    update: &UpdateCommit,
) -> Option<Vec<Predicted>> {
    let tx = backend.domain.begin(&backend.options()).ok()?;
    let running = run(&tx, plan, update);
    let predicted = tokio::time::timeout(update.longest_prediction(), running).await;
    tx.rollback().await;
    predicted.ok()?.ok()
}

async fn run(
    tx: &Transaction,
    plan: &Plan,
    update: &UpdateCommit,
) -> Result<Vec<Predicted>, Error> {
    match plan.locks.check(tx).await {
        Ok(()) => {}
        Err(LockError::Engine(error)) => return Err(error),
        Err(_) => return Ok(Vec::new()),
    }
    let read = plan
        .addresses
        .iter()
        .filter_map(|address| Some((address.key()?, (address.documents.clone()?, address.id()))));
    let documents: BTreeMap<_, _> = read.chain(plan.written.documents()).collect();
    for (key, (documents, id)) in &documents {
        match update.newest(key) {
            Some(Some(content)) => tx.put(documents, id.clone(), &content)?,
            Some(None) => tx.delete(documents, id.clone())?,
            None => {}
        }
    }
    for (address, expected) in plan.addresses.iter().zip(&plan.tokens) {
        let content = address.content(tx).await?;
        if token(content.as_ref().map(Raw::as_str)) != *expected {
            return Ok(Vec::new());
        }
    }
    match plan.prepared.apply(tx).await {
        Ok(()) => {}
        Err(RequestError::Engine(error)) => return Err(error),
        Err(_) => return Ok(Vec::new()),
    }
    let mut predicted = Vec::new();
    for (key, (documents, id)) in documents {
        if update.reserves(&key) {
            predicted.push((key, tx.get(&documents, id).await?));
        }
    }
    Ok(predicted)
}
