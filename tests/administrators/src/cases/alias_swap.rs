//! The application's alias of an index is moved to a copy.
//!
//! Expected: processes notice, and refuse transactions with an error that names the remedy.
//! Acknowledged transactions are complete in their index. A process that opens the collection again
//! continues with the other index.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use txn_core::{Error, ErrorKind};
use txn_fixtures::bank;

use super::send;
use crate::found::all;
use crate::server::Server;
use crate::stage::{Outcome, Service, Setup, Stage};

/// In each round every worker is refused once.
const ROUNDS: usize = 10;

pub(super) async fn run(server: &Server) -> Outcome {
    let mut stage = Stage::prepared(server, async |fixture| {
        let (alias, index) = (fixture.name("current"), fixture.name("accounts"));
        fixture.plain.make(&index, &json!({"aliases": {&alias: {}}})).await;
        Setup { alias: Some((alias, index)), ..Setup::plain(server) }
    })
    .await;
    let service = Service::Refused(&[ErrorKind::Misconfigured], &["alias"]);
    stage
        .during(service, async |stage| {
            let (plain, old) = (stage.plain(), stage.accounts());
            let new = format!("{old}-new");
            plain.make(&new, &json!({})).await;
            swap(stage, old, &new).await?;
            stage.complains().await?;
            is_left_alone(stage, old).await?;
            Box::pin(newcomer(stage, old, &new)).await?;
            swap(stage, &new, old).await?;
            for number in 0..stage.load.size() {
                let process = stage.process().await.map_err(|error| error.to_string())?;
                stage.load.replace(number, process);
            }
            Ok(())
        })
        .await;
    stage.end().await
}

async fn swap(stage: &Stage, from: &str, to: &str) -> Result<Value, String> {
    let actions = json!({"actions": [
        {"remove": {"index": from, "alias": stage.alias()}},
        {"add": {"index": to, "alias": stage.alias()}},
    ]});
    send(stage.plain(), "POST", "/_aliases", Some(actions)).await
}

/// Returns after the last write to an index.
///
/// Each process asks once per lease which index the alias means, and a transaction that began
/// before may still commit.
async fn is_left_alone(stage: &Stage, index: &str) -> Result<(), String> {
    let mut before = balances(stage, index).await;
    for _ in 0..ROUNDS {
        stage.complains().await?;
        let after = balances(stage, index).await;
        if before == after {
            return Ok(());
        }
        before = after;
    }
    Err(format!("after the swap {index} is written again and again"))
}

/// Returns the values of accounts and counters of an index. Locks may still be released there.
async fn balances(stage: &Stage, index: &str) -> BTreeMap<String, Value> {
    let documents = all(stage.plain(), index).await;
    documents.into_iter().map(|(id, source)| (id, source["balance"].clone())).collect()
}

/// Checks that a new process uses only the new index.
///
/// The process opens the alias now.
async fn newcomer(stage: &Stage, old: &str, new: &str) -> Result<(), String> {
    let process = stage.process().await.map_err(|error| format!("cannot be reopened: {error}"))?;
    let ids = ["first", "second"];
    let done = process
        .domain
        .transact::<_, Error, _>(async |tx| {
            ids.iter().try_for_each(|id| tx.insert(&process.accounts, *id, &bank::account(1)))
        })
        .await;
    done.map_err(|error| format!("a transaction after reopening: {error}"))?;
    process.domain.shutdown(txn_fixtures::fixture::PATIENCE).await;
    for id in ids {
        let (in_old, in_new) =
            (stage.plain().source(old, id).await, stage.plain().source(new, id).await);
        if in_old.is_some() || in_new.is_none() {
            return Err(format!("{id} is not in {new} alone"));
        }
    }
    Ok(())
}
