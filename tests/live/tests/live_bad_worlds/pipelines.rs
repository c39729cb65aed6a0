//! Ingest pipelines that drop documents, or cannot run.

use std::time::Duration;

use serde_json::json;
use txn_core::Options;
use txn_fixtures::bank;
use txn_fixtures::fixture::{Fixture, all_is_applied};
use txn_fixtures::wire;
use txn_testkit::proxy::Point;

use super::{OPENING, Stage, soon};

/// Returns a pipeline that drops every document.
///
/// On a server without processors, the pipeline does not exist, so writes through it fail.
async fn dropping(fixture: &Fixture) -> String {
    let name = fixture.name("drops");
    let body = json!({"processors": [{"drop": {}}]}).to_string();
    fixture.plain.text("PUT", &format!("/_ingest/pipeline/{name}"), Some(body)).await;
    name
}

async fn set(fixture: &Fixture, index: &str, setting: &str, value: serde_json::Value) {
    let body = json!({"index": {setting: value}}).to_string();
    fixture.plain.ok("PUT", &format!("/{index}/_settings"), Some(body)).await;
}

pub(crate) async fn default_pipeline_is_skipped(fixture: &Fixture) {
    let stage = Stage::on(fixture).await;
    let pipeline = dropping(fixture).await;
    let index = stage.accounts.name();
    set(fixture, index, "default_pipeline", json!(pipeline)).await;
    // The write of a plain client is dropped.
    let path = format!("/{index}/_doc/plain");
    fixture.plain.text("PUT", &path, Some(r#"{"balance":1}"#.to_owned())).await;
    assert_eq!(stage.source(fixture, "plain").await, None);
    for domain in [&stage.domain, &stage.witness] {
        let options = Options::default();
        bank::spread(domain, &stage.accounts, &stage.names, &options).await.expect("moves");
    }
    all_is_applied(&stage.witness).await;
    let expected = [OPENING - 4, OPENING + 2, OPENING + 2].map(Some);
    assert_eq!(stage.balances().await, expected);
    stage.ends().await;
}

/// A request cannot skip a final pipeline.
///
/// A write that the pipeline drops stays committed, and is applied after the pipeline is removed.
pub(crate) async fn final_pipeline_blocks_the_apply_until_removed(fixture: &Fixture) {
    let stage = Stage::on(fixture).await;
    let pipeline = dropping(fixture).await;
    let (hold, transfer) = stage.held(wire::applies(), Point::Before).await;
    soon(transfer).await.expect("no panic").expect("it is committed");
    let index = stage.accounts.name();
    set(fixture, index, "final_pipeline", json!(pipeline)).await;
    hold.release();
    // The apply ends at once or after its timeout, depending on the server's answer.
    assert!(!stage.domain.shutdown(txn_fixtures::fixture::PATIENCE).await, "it cannot be applied");
    let expected = [OPENING - 2, OPENING + 1, OPENING + 1].map(Some);
    assert_eq!(stage.balances().await, expected, "readers are shown what is committed");
    let hurry = Options::default().with_timeout(Some(Duration::from_secs(2)));
    let refused = bank::spread(&stage.witness, &stage.accounts, &stage.names, &hurry).await;
    refused.expect_err("the documents are locked, and cannot be written");
    set(fixture, index, "final_pipeline", json!(null)).await;
    all_is_applied(&stage.witness).await;
    assert_eq!(stage.balances().await, expected);
    stage.spread().await.expect("goes on");
    stage.ends().await;
}
