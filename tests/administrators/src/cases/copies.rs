//! Copies of an index that carry its aliases.
//!
//! The copies come from a clone, a split, and a restore. Expected: the application continues with
//! the original. A clone and a split need a write block, and during the block transactions that
//! write are refused. Nothing is lost, and no damage is reported.

use serde_json::{Value, json};
use txn_core::ErrorKind;
use txn_fixtures::administrator::{Snapshot, is_assigned, put_settings};

use super::send;
use crate::server::Server;
use crate::stage::{Outcome, Service, Setup, Stage};

const BLOCKED: Service =
    Service::Refused(&[ErrorKind::Unavailable, ErrorKind::Misconfigured], &["block"]);

pub(super) async fn clone(server: &Server) -> Outcome {
    resize(server, "_clone", json!({"index.number_of_replicas": 0})).await
}

pub(super) async fn split(server: &Server) -> Outcome {
    resize(server, "_split", json!({"index.number_of_replicas": 0, "index.number_of_shards": 2}))
        .await
}

async fn resize(server: &Server, api: &str, mut settings: Value) -> Outcome {
    let mut stage = Stage::open(server, |_| Setup::plain(server)).await;
    settings["index.blocks.write"] = json!(null);
    stage
        .during(BLOCKED, async |stage| {
            let (plain, index) = (stage.plain(), stage.accounts());
            let block = async |value: Value| {
                put_settings(plain, index, json!({"index.blocks.write": value})).await
            };
            block(json!(true)).await?;
            stage.complains().await?;
            let aliases = send(plain, "GET", &format!("/{index}/_alias"), None).await?;
            let body = json!({"settings": settings, "aliases": aliases[index]["aliases"]});
            let copy = format!("{index}-copy");
            send(plain, "POST", &format!("/{index}/{api}/{copy}"), Some(body)).await?;
            is_assigned(plain, &copy).await?;
            block(json!(null)).await?;
            stage.load.acknowledges(60).await
        })
        .await;
    stage.end().await
}

pub(super) async fn restore(server: &Server) -> Outcome {
    let mut stage = Stage::open(server, |_| Setup::plain(server)).await;
    stage
        .during(Service::GoesOn, async |stage| {
            let plain = stage.plain();
            let repository = stage.name("snapshots");
            let snapshot = Snapshot::take(plain, &repository, &stage.indices()).await?;
            snapshot.restore(plain, "-restored", true).await?;
            stage.load.acknowledges(100).await?;
            snapshot.remove(plain).await
        })
        .await;
    stage.end().await
}
