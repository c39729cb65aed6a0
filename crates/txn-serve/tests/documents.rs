//! Requests of one document, and the answers that clients look at.

use hyper::Method;
use serde_json::{Value, json};

use super::desk::Desk;

#[tokio::test]
async fn document_is_written_read_and_deleted() {
    let desk = Desk::memory().await;
    let created = desk.put("/stock/_doc/a%2Fb", &json!({ "n": 1 })).await.is(201);
    assert_eq!((&created["_id"], &created["result"]), (&json!("a/b"), &json!("created")));
    let updated = desk.put("/stock/_doc/a%2Fb?refresh=true", &json!({ "n": 2 })).await.is(200);
    assert_eq!(updated["result"], "updated");
    let found = desk.get("/stock/_doc/a%2Fb").await.is(200);
    assert_eq!((&found["_source"], &found["found"]), (&json!({ "n": 2 }), &json!(true)));
    assert_eq!(found["_seq_no"], updated["_seq_no"]);
    let without = desk.get("/stock/_doc/a%2Fb?_source=false").await.is(200);
    assert_eq!(without["_source"], Value::Null);
    assert_eq!(desk.delete("/stock/_doc/a%2Fb").await.is(200)["result"], "deleted");
    assert_eq!(desk.delete("/stock/_doc/a%2Fb").await.is(404)["result"], "not_found");
    assert_eq!(desk.get("/stock/_doc/a%2Fb").await.is(404)["found"], false);
    desk.get("/stock/_source/a%2Fb").await.fails(404, "not_found");
    desk.get("/none/_doc/a").await.fails(404, "no_collection");
}

#[tokio::test]
async fn create_and_update_are_refused_as_on_servers() {
    let desk = Desk::memory().await;
    desk.put("/stock/_create/a", &json!({ "n": 1 })).await.is(201);
    let body = desk.put("/stock/_create/a", &json!({ "n": 2 })).await.fails(409, "refused");
    assert_eq!(body["error"]["type"], "version_conflict_engine_exception");
    desk.put("/stock/_doc/a?op_type=create", &json!({ "n": 2 })).await.fails(409, "refused");
    let body = desk.post("/stock/_update/b", &json!({ "doc": {} })).await.fails(404, "refused");
    assert_eq!(body["error"]["type"], "document_missing_exception");
    let body = json!({ "doc": { "m": 1 }, "upsert": { "n": 9 } });
    assert_eq!(desk.post("/stock/_update/b", &body).await.is(201)["result"], "created");
    assert_eq!(desk.post("/stock/_update/b", &body).await.is(200)["result"], "updated");
    assert_eq!(desk.content("/stock/_doc/b").await, json!({ "n": 9, "m": 1 }));
    assert_eq!(desk.content("/stock/_doc/a").await, json!({ "n": 1 }));
}

#[tokio::test]
async fn condition_holds_for_equal_content_only() {
    let desk = Desk::memory().await;
    let at = |body: &Value| {
        format!("if_seq_no={}&if_primary_term={}", body["_seq_no"], body["_primary_term"])
    };
    let first = desk.put("/stock/_doc/a", &json!({ "n": 1 })).await.is(201);
    let path = format!("/stock/_doc/a?{}", at(&first));
    let second = desk.put(&path, &json!({ "n": 2 })).await.is(200);
    let body = desk.put(&path, &json!({ "n": 3 })).await.fails(409, "refused");
    assert_eq!(body["error"]["type"], "version_conflict_engine_exception");
    desk.delete(&path).await.fails(409, "refused");
    let found = desk.get("/stock/_doc/a").await.is(200);
    assert_eq!(at(&found), at(&second));
    let lines = [
        json!({ "index": { "_id": "a", "if_seq_no": found["_seq_no"], "if_primary_term": found["_primary_term"] } }),
        json!({ "n": 4 }),
    ];
    desk.bulk("/stock/_bulk", &lines).await.is(200);
    desk.bulk("/stock/_bulk", &lines).await.fails(409, "refused");
    desk.put("/stock/_doc/a?if_seq_no=1", &json!({})).await.fails(400, "invalid");
}

#[tokio::test]
async fn new_documents_get_ids_of_their_own() {
    let desk = Desk::memory().await;
    let one = desk.post("/stock/_doc", &json!({ "n": 1 })).await.is(201);
    let other = desk.post("/stock/_doc", &json!({ "n": 1 })).await.is(201);
    assert_ne!(one["_id"], other["_id"]);
    let path = format!("/stock/_doc/{}", one["_id"].as_str().expect("an id"));
    assert_eq!(desk.content(&path).await, json!({ "n": 1 }));
}

#[tokio::test]
async fn routing_is_a_part_of_the_address() {
    let desk = Desk::memory().await;
    desk.put("/stock/_doc/a?routing=r", &json!({ "n": 1 })).await.is(201);
    let found = desk.get("/stock/_doc/a?routing=r").await.is(200);
    assert_eq!((&found["_routing"], &found["_source"]), (&json!("r"), &json!({ "n": 1 })));
}

#[tokio::test]
async fn unsupported_requests_are_refused_by_name() {
    let desk = Desk::memory().await;
    for (path, word) in [
        ("/stock/_doc/a?pipeline=p", "pipeline"),
        ("/stock/_doc/a?version=3", "version"),
        ("/stock/_doc/a?filter_path=x", "filter_path"),
    ] {
        let body = desk.put(path, &json!({})).await.fails(400, "unsupported");
        assert!(body["error"]["reason"].to_string().contains(word), "{body}");
    }
    desk.post("/stock/_update/a", &json!({ "script": "x" })).await.fails(400, "unsupported");
    desk.get("/stock/_search").await.fails(501, "needs_server");
    let answer = desk.delete("/stock").await;
    assert_eq!(answer.header("allow"), "PUT, HEAD");
    answer.fails(405, "method");
    desk.get("/_txn/a/b").await.fails(404, "not_found");
}

#[tokio::test]
async fn bodies_are_json_by_their_header() {
    let desk = Desk::memory().await;
    let put = |headers: &'static [(&'static str, &'static str)]| {
        desk.send(Method::PUT, "/stock/_doc/a", headers, "{}")
    };
    put(&[]).await.fails(415, "content_type");
    put(&[("content-type", "text/plain")]).await.fails(415, "content_type");
    put(&[("content-type", "application/x-www-form-urlencoded")]).await.fails(415, "content_type");
    let gzip = &[("content-type", "application/json"), ("content-encoding", "gzip")];
    put(gzip).await.fails(415, "content_type");
    put(&[("content-type", "application/vnd.elasticsearch+json; compatible-with=9")]).await.is(201);
}

#[tokio::test]
async fn clients_of_elasticsearch_get_their_type() {
    let config =
        txn_serve::ServeConfig::default().with_create_collections(true).with_elastic_product(true);
    let desk = Desk::with(std::sync::Arc::new(txn_core::store::MemoryStore::new()), config).await;
    for version in ["7", "8", "9"] {
        let accept = format!("application/vnd.elasticsearch+json; compatible-with={version}");
        let headers = [("accept", &*accept)];
        for path in ["/", "/stock/_doc/a", "/stock/_search"] {
            let answer = desk.send(Method::GET, path, &headers, "").await;
            let expected = format!("application/vnd.elasticsearch+json;compatible-with={version}");
            assert_eq!(answer.header("content-type"), expected, "{path}");
            assert_eq!(answer.header("x-elastic-product"), "Elasticsearch", "{path}");
        }
    }
    assert_eq!(desk.get("/").await.header("content-type"), "application/json");
    let plain = Desk::memory().await.get("/").await;
    assert_eq!(plain.header("x-elastic-product"), "");
    assert_eq!(plain.json()["version"]["distribution"], "txn");
}

#[tokio::test]
async fn collections_are_created_and_found() {
    let desk = Desk::memory().await;
    let head = |path: &'static str| desk.send(Method::HEAD, path, &[], "");
    assert_eq!(head("/stock").await.status, 404);
    let created = desk.send(Method::PUT, "/stock", &[], "").await.is(200);
    assert_eq!(created["index"], "stock");
    assert_eq!(head("/stock").await.status, 200);
    let again = desk.send(Method::PUT, "/stock", &[], "").await.fails(400, "invalid");
    assert_eq!(again["error"]["type"], "resource_already_exists_exception");
    let store = std::sync::Arc::new(txn_core::store::MemoryStore::new());
    let strict = Desk::with(store, txn_serve::ServeConfig::default()).await;
    strict.send(Method::PUT, "/stock", &[], "").await.fails(400, "unsupported");
    strict.put("/stock/_doc/a", &json!({})).await.fails(404, "no_collection");
}

#[tokio::test]
async fn update_of_nothing_creates_no_collection() {
    let desk = Desk::memory().await;
    let update = json!({ "doc": { "n": 1 } });
    desk.post("/none/_update/a", &update).await.fails(404, "no_collection");
    let lines = [json!({ "update": { "_index": "none", "_id": "a" } }), update];
    desk.bulk("/_bulk", &lines).await.fails(404, "no_collection");
    assert_eq!(desk.send(Method::HEAD, "/none", &[], "").await.status, 404);
    let upsert = json!({ "doc": { "n": 1 }, "upsert": { "n": 0 } });
    desk.post("/none/_update/a", &upsert).await.is(201);
}
