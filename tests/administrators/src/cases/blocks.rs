//! An index is blocked, by an operator or by a full disk.
//!
//! Expected: transactions that write end at once, with an error about the block. Verified reads and
//! read-only transactions continue, except on documents that an unfinished transaction holds. After
//! the block is lifted, all transactions continue without a loss.

use serde_json::json;
use txn_core::{Error, ErrorKind, Options};
use txn_fixtures::administrator::put_settings;

use crate::book;
use crate::found::Source;
use crate::load::{ACCOUNTS, Process};
use crate::server::Server;
use crate::stage::{Outcome, Service, Setup, Stage};

pub(super) async fn run(server: &Server, block: &str) -> Outcome {
    let mut stage = Stage::open(server, |_| Setup::plain(server)).await;
    let service = Service::Refused(&[ErrorKind::Unavailable, ErrorKind::Misconfigured], &["block"]);
    stage
        .during(service, async |stage| {
            let setting = format!("index.blocks.{block}");
            let set = async |value: serde_json::Value| {
                put_settings(stage.plain(), stage.accounts(), json!({ &setting: value })).await
            };
            set(json!(true)).await?;
            stage.complains().await?;
            let read = Box::pin(reads(stage)).await;
            set(json!(null)).await?;
            read.map_err(|error| format!("during the block: {error}"))
        })
        .await;
    stage.end().await
}

/// Runs a verified read and a read-only transaction of unlocked accounts.
///
/// A committed transaction cannot be applied during the block, and its readers wait.
async fn reads(stage: &Stage) -> Result<(), Error> {
    let Process { domain, accounts, .. } = stage.load.process(0);
    let mut names: Vec<String> = Vec::new();
    for name in (0..ACCOUNTS).map(book::account) {
        let text = stage.plain().source(stage.accounts(), &name).await;
        let source = text.and_then(|text| serde_json::from_str(&text).ok()).map(Source::new);
        if source.is_some_and(|source| !source.is_locked()) {
            names.push(name);
        }
    }
    domain.reader().verified().get_many(&accounts, names.iter().map(String::as_str)).await?;
    let options = Options::default().with_read_only(true);
    domain
        .run::<_, Error, _>(&options, async |tx| {
            tx.get_many(&accounts, names.iter().map(String::as_str)).await
        })
        .await?;
    Ok(())
}
