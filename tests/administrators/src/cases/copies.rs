//! Copies of an index that carry its aliases.
//!
//! The copies come from a clone, a split, and a restore. Expected: the application continues with
//! the original. A clone and a split need a write block, and during the block transactions that
//! write are refused. Nothing is lost, and no damage is reported.

use serde_json::{Value, json};
use txn_core::ErrorKind;

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
                let body = json!({"index.blocks.write": value});
                send(plain, "PUT", &format!("/{index}/_settings"), Some(body)).await
            };
            block(json!(true)).await?;
            stage.complains().await?;
            let aliases = send(plain, "GET", &format!("/{index}/_alias"), None).await?;
            let body = json!({"settings": settings, "aliases": aliases[index]["aliases"]});
            let copy = format!("{index}-copy");
            send(plain, "POST", &format!("/{index}/{api}/{copy}"), Some(body)).await?;
            send(plain, "GET", &format!("/_cluster/health/{copy}?wait_for_status=yellow"), None)
                .await?;
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
            let body = json!({"type": "fs", "settings": {"location": repository}});
            send(plain, "PUT", &format!("/_snapshot/{repository}"), Some(body)).await?;
            let indices = stage.indices().join(",");
            let body = json!({"indices": indices, "include_global_state": false});
            let snapshot = format!("/_snapshot/{repository}/one");
            send(plain, "PUT", &format!("{snapshot}?wait_for_completion=true"), Some(body)).await?;
            let body = json!({
                "indices": indices, "rename_pattern": "^(.+)$", "rename_replacement": "$1-restored",
            });
            let path = format!("{snapshot}/_restore?wait_for_completion=true");
            send(plain, "POST", &path, Some(body)).await?;
            stage.load.acknowledges(100).await?;
            send(plain, "DELETE", &snapshot, None).await?;
            send(plain, "DELETE", &format!("/_snapshot/{repository}"), None).await?;
            Ok(())
        })
        .await;
    stage.end().await
}
