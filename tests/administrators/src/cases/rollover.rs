//! A rollover of an alias with a write index.
//!
//! Expected: a collection cannot be opened by such an alias, and the error names the alias. If the
//! application opened the write index by its own name, a rollover of an alias of that index
//! disturbs nothing.

use serde_json::json;
use txn_core::ErrorKind;
use txn_fixtures::bank::Accounts;

use super::send;
use crate::server::Server;
use crate::stage::{Outcome, Service, Setup, Stage};

pub(super) async fn run(server: &Server) -> Outcome {
    let mut stage = Stage::prepared(server, async |fixture| {
        let (alias, index) = (fixture.name("log"), fixture.name("accounts-000001"));
        fixture.plain.make(&index, &json!({"aliases": {alias: {"is_write_index": true}}})).await;
        Setup { alias: Some((index.clone(), index)), ..Setup::plain(server) }
    })
    .await;
    let alias = stage.name("log");
    let domain = stage.load.process(0).domain;
    let opened =
        domain.collection(&alias).await.map(|accounts: Accounts| accounts.name().to_owned());
    let is_refused = matches!(&opened, Err(error)
        if error.kind() == ErrorKind::Misconfigured && error.to_string().contains("alias"));
    stage.check(is_refused, format!("an alias with a write index was opened: {opened:?}"));
    stage
        .during(Service::GoesOn, async |stage| {
            send(stage.plain(), "POST", &format!("/{alias}/_rollover"), None).await?;
            stage.load.acknowledges(100).await
        })
        .await;
    stage.end().await
}
