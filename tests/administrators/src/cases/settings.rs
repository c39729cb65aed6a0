//! Settings and mappings change during the load: replicas, refresh, pipelines, fields, allocation.
//!
//! Expected: transactions continue without a loss.

use serde_json::{Value, json};

use super::send;
use crate::server::Server;
use crate::stage::{Outcome, Service, Setup, Stage};

pub(super) async fn run(server: &Server) -> Outcome {
    let mut stage = Stage::open(server, |_| Setup::plain(server)).await;
    stage
        .during(Service::GoesOn, async |stage| {
            for (what, body) in changes() {
                for index in stage.indices() {
                    let path = format!("/{index}/{what}");
                    let method = if what.starts_with("_forcemerge") { "POST" } else { "PUT" };
                    send(stage.plain(), method, &path, body.clone()).await?;
                }
                stage.load.acknowledges(20).await?;
            }
            Ok(())
        })
        .await;
    stage.end().await
}

fn changes() -> Vec<(&'static str, Option<Value>)> {
    let settings = |settings: Value| ("_settings", Some(settings));
    vec![
        settings(json!({"index.number_of_replicas": 0})),
        settings(json!({"index.refresh_interval": "-1"})),
        settings(json!({"index.number_of_replicas": 1})),
        settings(json!({"index.refresh_interval": null, "index.max_result_window": 5_000})),
        settings(json!({"index.default_pipeline": "there-is-none"})),
        settings(json!({"index.default_pipeline": null})),
        settings(json!({"index.number_of_replicas": 0})),
        ("_mapping", Some(json!({"properties": {"note": {"type": "keyword"}}}))),
        ("_mapping", Some(json!({"dynamic": "strict"}))),
        ("_forcemerge?max_num_segments=1", None),
    ]
}
