//! Probes, metrics and the OpenAPI document.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use serde_json::{Value, json};
use txn_core::store::MemoryStore;
use txn_metrics::Metrics;
use txn_metrics::figures::RESULTS_TOTAL;
use txn_serve::ServeConfig;
use txn_sim::{FaultPlan, FaultStore};

use super::desk::{Desk, add};

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
    assert_eq!(body["schema"], json!({ "$ref": "#/components/schemas/Commit" }));
    assert!(document["paths"]["/{index}/_bulk"]["put"].is_object());
    assert!(document["components"]["schemas"]["Operation"].is_object());
}

/// A gateway whose results a recorder counts, and its store.
async fn counted() -> (Snapshotter, Arc<FaultStore>, Desk) {
    let recorder = DebuggingRecorder::new();
    let results = metrics::with_local_recorder(&recorder, || Arc::new(Metrics::new("shop")));
    let config = ServeConfig::default()
        .with_create_collections(true)
        .with_timeout(Duration::from_millis(100))
        .with_results(Some(results));
    let store = Arc::new(FaultStore::new(Arc::new(MemoryStore::new()), FaultPlan::none(1)));
    (recorder.snapshotter(), store.clone(), Desk::with(store, config).await)
}

/// The results above 0 since the last call.
fn results(snapshotter: &Snapshotter) -> BTreeMap<String, u64> {
    let series = snapshotter.snapshot().into_vec().into_iter();
    let counted = series.filter_map(|(key, _, _, value)| {
        let key = key.key();
        let result = key.labels().find(|label| label.key() == "result")?.value().to_owned();
        match value {
            DebugValue::Counter(n) if n > 0 && key.name() == RESULTS_TOTAL => Some((result, n)),
            _ => None,
        }
    });
    counted.collect()
}

#[tokio::test(start_paused = true)]
async fn each_transaction_counts_its_result_once() {
    let (snapshotter, store, desk) = counted().await;
    let only = |result: &str, n: u64| {
        assert_eq!(results(&snapshotter), [(result.to_owned(), n)].into());
    };
    desk.put("/stock/_doc/a", &json!({ "n": 1 })).await.is(201);
    let action = |verb: &str| [json!({ verb: { "_index": "stock", "_id": "b" } }), json!({})];
    desk.bulk("/_bulk", &action("create")).await.is(200);
    let adding = |amount: i64| json!({ "operations": [add("stock", "a", amount)] });
    desk.post("/_txn", &adding(1)).await.is(200);
    desk.post("/_txn/commit", &adding(1)).await.is(200);
    only("committed", 4);

    desk.bulk("/_bulk", &action("create")).await.fails(409, "refused");
    desk.put("/stock/_create/a", &json!({})).await.fails(409, "refused");
    desk.post("/_txn", &adding(-9)).await.fails(409, "refused");
    let stale = json!({ "target": { "collection": "stock", "id": "a" }, "token": "absent" });
    desk.post("/_txn/commit", &json!({ "reads": [stale] })).await.fails(409, "changed");
    only("refused", 4);

    for _ in 0..2 {
        desk.keyed("/_txn", "k", &adding(1)).await.is(200);
    }
    only("committed", 2);
    desk.keyed("/_txn", "k", &adding(2)).await.fails(422, "key_reused");
    only("key_reused", 1);

    // Reads and malformed requests are no transactions.
    desk.get("/stock/_doc/a").await.is(200);
    desk.post("/_txn", &Value::Null).await.fails(400, "invalid");
    assert_eq!(results(&snapshotter), BTreeMap::new());
    store.begin_outage(None, Duration::from_secs(60));
    desk.post("/_txn", &adding(1)).await.fails(503, "unavailable");
    only("unavailable", 1);
}
