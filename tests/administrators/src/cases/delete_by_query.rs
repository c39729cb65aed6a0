//! Deletions by query.
//!
//! Expected: a deletion of documents without a certain field finds placeholders, which have no
//! content, and no document. So nothing is lost, through the index and through `<index>-committed`.
//! A deletion of old documents deletes only these.

use serde_json::{Value, json};

use super::scan::{Change, Through, once};
use super::{beside, send};
use crate::book::{Fate, Role};
use crate::server::Server;
use crate::stage::{Outcome, Service, Setup, Stage};

pub(super) async fn without_field(server: &Server, through: Through) -> Outcome {
    let mut stage = Stage::open(server, |_| Setup::plain(server)).await;
    stage
        .during(Service::GoesOn, async |stage| {
            let without = |field: &str| json!({"bool": {"must_not": {"exists": {"field": field}}}});
            beside(stage, 10, 400, async || {
                let (accounts, entries) = (stage.accounts(), stage.entries());
                once(stage, &through.name(accounts), &without("balance"), Change::Delete).await?;
                once(stage, &through.name(entries), &without("kind"), Change::Delete).await
            })
            .await
        })
        .await;
    stage.end().await
}

/// The number of deleted and of kept documents.
///
/// Both have the same age.
const OLD: usize = 60;

pub(super) async fn old(server: &Server) -> Outcome {
    let mut stage = Stage::open(server, |_| Setup::plain(server)).await;
    for number in 0..OLD {
        let (kind, fate) =
            if number % 2 == 0 { ("old", Fate::Goes) } else { ("kept", Fate::Stays) };
        let id = format!("{kind}-{number}");
        let source: Value = json!({"kind": kind, "moves": []});
        stage.plain().put(stage.entries(), &id, &source.to_string()).await;
        stage.load.enter_into_book(|book| {
            book.owned.insert((Role::Entries, id), fate);
        });
    }
    stage
        .during(Service::GoesOn, async |stage| {
            let old = json!({"term": {"kind": "old"}});
            beside(stage, 5, 200, async || {
                once(stage, stage.entries(), &old, Change::Delete).await
            })
            .await?;
            let count = format!("/{}/_count", stage.entries());
            send(stage.plain(), "POST", &format!("/{}/_refresh", stage.entries()), None).await?;
            let left = send(stage.plain(), "POST", &count, Some(json!({"query": old}))).await?;
            if left["count"] == json!(0) {
                Ok(())
            } else {
                Err(format!("old ones are left: {left}"))
            }
        })
        .await;
    stage.end().await
}
