//! Probes, metrics and the OpenAPI document.

use std::sync::Arc;

use serde_json::json;
use txn_core::store::MemoryStore;
use txn_serve::ServeConfig;

use super::desk::Desk;

#[tokio::test]
async fn probes_answer() {
    let desk = Desk::memory().await;
    desk.get("/healthz").await.is(200);
    desk.get("/readyz").await.is(200);
    desk.get("/metrics").await.fails(404, "not_found");
    let render = Arc::new(|| "txn_commits_total 1\n".to_owned());
    let config = ServeConfig::default().with_metrics(Some(render));
    let desk = Desk::with(Arc::new(MemoryStore::new()), config).await;
    let answer = desk.get("/metrics").await;
    assert_eq!((answer.status.as_u16(), &*answer.text), (200, "txn_commits_total 1\n"));
    assert!(answer.header("content-type").starts_with("text/plain"));
}

#[tokio::test]
async fn openapi_describes_the_paths() {
    let desk = Desk::memory().await;
    let document = desk.get("/openapi.json").await.is(200);
    assert_eq!(document["openapi"], "3.1.0");
    let body = &document["paths"]["/_txn"]["post"]["requestBody"]["content"]["application/json"];
    assert_eq!(body["schema"], json!({ "$ref": "#/components/schemas/Request" }));
    assert!(document["paths"]["/{index}/_bulk"]["put"].is_object());
    assert!(document["components"]["schemas"]["Operation"].is_object());
}
