//! Atomic bulks.

use serde_json::{Value, json};

use super::desk::Desk;

async fn all_actions(desk: &Desk) {
    desk.put("/stock/_doc/old", &json!({ "n": 1, "tags": { "a": 1 } })).await.is(201);
    desk.put("/stock/_doc/gone", &json!({ "n": 1 })).await.is(201);
    let lines = [
        json!({ "index": { "_id": "new" } }),
        json!({ "n": 1 }),
        json!({ "index": { "_index": "stock", "_id": "old" } }),
        json!({ "n": 2, "tags": { "a": 1 } }),
        json!({ "update": { "_index": "stock", "_id": "old" } }),
        json!({ "doc": { "tags": { "b": 2 } } }),
        json!({ "update": { "_index": "stock", "_id": "old" } }),
        json!({ "doc": { "tags": { "b": 2 } } }),
        json!({ "update": { "_index": "orders", "_id": "up" } }),
        json!({ "doc": { "n": 5 }, "doc_as_upsert": true }),
        json!({ "create": { "_index": "orders" } }),
        json!({ "n": 3 }),
        json!({ "delete": { "_id": "gone" } }),
        json!({ "delete": { "_id": "gone" } }),
    ];
    let body = desk.bulk("/stock/_bulk", &lines).await.is(200);
    assert_eq!(body["errors"], false);
    let items = body["items"].as_array().expect("items");
    let shown: Vec<String> = items
        .iter()
        .map(|item| {
            let (verb, item) = item.as_object().and_then(|item| item.iter().next()).expect("one");
            format!("{verb} {} {} {}", item["_index"], item["result"], item["status"])
        })
        .collect();
    let expected = [
        r#"index "stock" "created" 201"#,
        r#"index "stock" "updated" 200"#,
        r#"update "stock" "updated" 200"#,
        r#"update "stock" "noop" 200"#,
        r#"update "orders" "created" 201"#,
        r#"create "orders" "created" 201"#,
        r#"delete "stock" "deleted" 200"#,
        r#"delete "stock" "not_found" 404"#,
    ];
    assert_eq!(shown, expected);
    assert_eq!(
        desk.content("/stock/_doc/old").await,
        json!({ "n": 2, "tags": { "a": 1, "b": 2 } })
    );
    assert_eq!(desk.content("/stock/_doc/gone").await, Value::Null);
    let id = items[5]["create"]["_id"].as_str().expect("a new id");
    assert_eq!(desk.content(&format!("/orders/_doc/{id}")).await, json!({ "n": 3 }));
}

#[tokio::test]
async fn bulk_carries_out_all_actions_in_memory() {
    all_actions(&Desk::memory().await).await;
}

#[tokio::test]
async fn bulk_carries_out_all_actions_in_a_file() {
    all_actions(&Desk::file().await).await;
}

#[tokio::test]
async fn refused_action_refuses_the_bulk() {
    let desk = Desk::memory().await;
    desk.put("/stock/_doc/a", &json!({ "n": 1 })).await.is(201);
    let lines = [
        json!({ "index": { "_id": "b" } }),
        json!({ "n": 1 }),
        json!({ "create": { "_id": "a" } }),
        json!({ "n": 2 }),
        json!({ "update": { "_id": "c" } }),
        json!({ "doc": { "n": 2 } }),
        json!({ "delete": { "_id": "a" } }),
    ];
    let body = desk.bulk("/stock/_bulk", &lines).await.fails(409, "refused");
    assert_eq!((&body["errors"], body["items"].as_array().map(Vec::len)), (&json!(true), Some(4)));
    let kind = |at: usize, verb: &str| {
        let item = &body["items"][at][verb];
        (item["status"].clone(), item["error"]["type"].clone())
    };
    assert_eq!(kind(0, "index"), (json!(424), json!("txn_aborted_exception")));
    assert_eq!(kind(1, "create"), (json!(409), json!("version_conflict_engine_exception")));
    assert_eq!(kind(2, "update"), (json!(404), json!("document_missing_exception")));
    assert_eq!(kind(3, "delete"), (json!(424), json!("txn_aborted_exception")));
    assert_eq!(desk.content("/stock/_doc/a").await, json!({ "n": 1 }));
    assert_eq!(desk.content("/stock/_doc/b").await, Value::Null);
}

#[tokio::test]
async fn content_that_does_not_fit_is_a_bad_request() {
    let desk = Desk::memory().await;
    let lines = [
        json!({ "index": { "_id": "a" } }),
        json!({ "n": 1 }),
        json!({ "index": { "_id": "b" } }),
        json!({ "transaction_tid": "x" }),
    ];
    let body = desk.bulk("/stock/_bulk", &lines).await.fails(400, "invalid");
    assert_eq!(body["items"][1]["index"]["error"]["type"], "document_parsing_exception");
    assert_eq!(desk.content("/stock/_doc/a").await, Value::Null);
}

#[tokio::test]
async fn unknown_collections_are_refused_or_created() {
    let desk = Desk::memory().await;
    for name in ["_x", "Stock", "-stock", "sto*", "a b"] {
        let lines = [json!({ "index": { "_index": name, "_id": "a" } }), json!({})];
        let answer = desk.bulk("/_bulk", &lines).await;
        assert_eq!(answer.status, 400, "{name}: {}", answer.text);
    }
    for name in ["txn-registry", "shop-idempotency", "stock-history", "shop-locks"] {
        let lines = [json!({ "index": { "_index": name, "_id": "a" } }), json!({})];
        desk.bulk("/_bulk", &lines).await.fails(400, "reserved");
    }
    let lines = [json!({ "delete": { "_index": "none", "_id": "a" } })];
    desk.bulk("/_bulk", &lines).await.fails(404, "no_collection");
}

#[tokio::test]
async fn numbers_keep_all_digits() {
    let desk = Desk::memory().await;
    let body = "{\"index\":{\"_index\":\"stock\",\"_id\":\"a\"}}\n{\"n\":1234567890.12345678901234567890}\n\
                {\"update\":{\"_index\":\"stock\",\"_id\":\"a\"}}\n{\"doc\":{\"m\":1.10}}\n";
    let headers = [("content-type", "application/x-ndjson")];
    desk.send(hyper::Method::PUT, "/_bulk", &headers, body).await.is(200);
    let found = desk.get("/stock/_source/a").await;
    assert_eq!(found.text, r#"{"n":1234567890.12345678901234567890,"m":1.10}"#);
}

#[tokio::test]
async fn concurrent_bulks_are_serial() {
    let desk = std::sync::Arc::new(Desk::memory().await);
    for id in ["a", "b"] {
        desk.put(&format!("/stock/_doc/{id}"), &json!({ "by": 0 })).await.is(201);
    }
    let tasks: Vec<_> = (1..=16)
        .map(|by| {
            let desk = desk.clone();
            tokio::spawn(async move {
                let order = if by % 2 == 0 { ["a", "b"] } else { ["b", "a"] };
                let lines: Vec<Value> = order
                    .iter()
                    .flat_map(|id| [json!({ "index": { "_id": id } }), json!({ "by": by })])
                    .collect();
                desk.bulk("/stock/_bulk", &lines).await.is(200);
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    let (a, b) = (desk.content("/stock/_doc/a").await, desk.content("/stock/_doc/b").await);
    assert!(a == b && a["by"] != 0, "{a} {b}");
}
