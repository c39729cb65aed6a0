//! Rights on requests for the servers.
//!
//! Some requests try to reach other indices.

use hyper::Method;
use serde_json::{Value, json};
use txn_serve::ServeConfig;

use super::access::{File, ask, lacks};
use super::desk::{Answer, Desk};
use super::passing::{Received, desk_with};

/// A gateway with a limited caller, and the server's requests.
///
/// The caller has `verbs` on `logs` and `app-*`.
async fn desk(verbs: &[&str]) -> (Desk, String, Received) {
    let mut file = File::new();
    let token = file.add("shop", &["logs", "app-*"], verbs);
    let (desk, received) = desk_with(ServeConfig::default().with_tokens(Some(file.open()))).await;
    (desk, token, received)
}

async fn post(desk: &Desk, token: &str, path: &str, body: &Value) -> Answer {
    ask(desk, token, Method::POST, path, body).await
}

#[tokio::test]
async fn reads_of_named_indices_pass() {
    let (desk, token, _) = desk(&["pass-reads"]).await;
    for path in [
        "/logs/_search?size=1&scroll=1m",
        "/logs,app-1,app-*/_search",
        "/app-2*/_count",
        "/app-*,-app-old*/_search",
        "/%6Cogs/_search",
        "/logs/_eql/search",
        "/app-*b*/_field_caps",
        "/logs/_refresh",
    ] {
        post(&desk, &token, path, &json!({ "query": { "match_all": {} } })).await.is(200);
    }
    for path in ["/logs/_doc/1", "/logs/_mapping", "/logs", "/logs/_source/1", "/"] {
        ask(&desk, &token, Method::GET, path, &Value::Null).await.is(200);
    }
    let answer = ask(&desk, &token, Method::HEAD, "/logs", &Value::Null).await;
    assert_eq!(answer.status, 200);
    let names = json!([{ "index": ["logs", "app-1"] }, {}, { "index": "logs,app-*" }, {}, {}, {}]);
    post(&desk, &token, "/logs/_msearch", &names).await.is(200);
    let documents = json!({ "docs": [{ "_index": "app-1", "_id": "a" }, { "_id": "b" }] });
    post(&desk, &token, "/logs/_mget", &documents).await.is(200);
}

#[tokio::test]
async fn path_reaches_no_other_index() {
    let (desk, token, received) = desk(&["pass-reads"]).await;
    for (path, name) in [
        ("/metrics/_search", "metrics"),
        ("/stock/_search", "stock"),
        ("/logs,metrics/_search", "metrics"),
        ("/logs%2Cmetrics/_search", "metrics"),
        ("/logs2/_search", "logs2"),
        ("/LOGS/_search", "LOGS"),
        ("/log*/_search", "log*"),
        ("/app*/_search", "app*"),
        ("/app-*,-app-x,metrics/_search", "metrics"),
        ("/*/_search", "*"),
        ("/_search", "*"),
        ("/logs,_all/_search", "*"),
        ("/,/_search", "*"),
        ("/logs,/_search", "*"),
        ("/-metrics/_search", "*"),
        ("/logs,-metrics/_search", "*"),
        ("/app-*,-_all/_search", "*"),
        ("/%2B%6Cogs/_search", "*"),
        ("/%3Clogs-%7Bnow%2Fd%7D%3E/_search", "*"),
        ("/other:logs/_search", "*"),
        ("/logs::failures/_search", "*"),
        ("/logs%252Cmetrics/_search", "*"),
        ("/logs%20/_search", "*"),
        ("/logs;metrics/_search", "*"),
        ("/metrics/_search/", "metrics"),
        ("http://localhost/metrics/_search", "metrics"),
        ("/_msearch", "*"),
        ("/_mget", "*"),
        ("/_sql", "*"),
        ("/_pit", "*"),
        ("/_query", "*"),
        ("/_query/async", "*"),
        ("/_search/scroll", "*"),
        ("/logs/_query", "*"),
        ("/logs/_search/point_in_time", "*"),
        ("/logs/_search/template", "*"),
        ("/metrics/_explain/1", "metrics"),
        ("/metrics/_termvectors/1", "metrics"),
        ("/logs/_msearch/template", "*"),
        ("/logs/_sql", "*"),
        ("/_render/template", "*"),
        ("/logs/_search?index=metrics", "*"),
        ("/logs/_search?%69ndex=metrics", "*"),
        ("/logs/_search?source=%7B%7D", "*"),
        ("/logs/_search?size=1&target=metrics", "*"),
    ] {
        lacks(post(&desk, &token, path, &json!({})).await, "pass-reads", Some(name));
    }
    for path in ["/_cat/indices", "/_nodes", "/_cluster/health", "/_mapping", "/_search/scroll"] {
        let answer = ask(&desk, &token, Method::GET, path, &Value::Null).await;
        lacks(answer, "pass-reads", Some("*"));
    }
    for path in [
        "/_pit",
        "/_search/point_in_time",
        "/_search/scroll",
        "/_search/scroll/abc",
        "/_async_search/abc",
        "/_query/async/abc",
    ] {
        let answer = ask(&desk, &token, Method::DELETE, path, &Value::Null).await;
        lacks(answer, "pass-reads", Some("*"));
    }
    for method in [Method::GET, Method::HEAD] {
        for path in ["/metrics/_doc/1", "/metrics/_source/1", "/metrics", "/logs,metrics/_doc/1"] {
            let answer = ask(&desk, &token, method.clone(), path, &Value::Null).await;
            assert_eq!(answer.status, 403, "{method} {path}: {}", answer.text);
        }
    }
    assert!(received.lock().is_empty(), "{:?}", received.lock());
}

#[tokio::test]
async fn body_reaches_no_other_index() {
    let (desk, token, received) = desk(&["pass-reads"]).await;
    let lookup = json!({ "terms": { "user": { "index": "metrics", "id": "1", "path": "p" } } });
    let alike = json!({ "more_like_this": { "like": [{ "_index": "metrics", "_id": "1" }] } });
    let shape = json!({ "geo_shape": { "area": { "indexed_shape": { "id": "1" } } } });
    let joined = json!({ "x": { "type": "lookup", "target_index": "metrics" } });
    for (path, body, name) in [
        ("/logs/_search", json!({ "query": { "bool": { "filter": [lookup] } } }), "metrics"),
        ("/logs/_search", json!({ "query": alike }), "metrics"),
        ("/logs/_search", json!({ "runtime_mappings": joined }), "metrics"),
        ("/logs/_search", json!({ "query": shape }), "*"),
        ("/logs/_search", json!({ "query": { "wrapper": { "query": "e30=" } } }), "*"),
        ("/logs/_search", json!({ "pit": { "id": "abc" } }), "*"),
        ("/logs/_rank_eval", json!({ "templates": [] }), "*"),
        ("/logs/_search", json!({ "suggest": { "s": { "phrase": { "collate": {} } } } }), "*"),
        ("/logs/_mget", json!({ "docs": [{ "_index": "metrics", "_id": "1" }] }), "metrics"),
        ("/logs/_mtermvectors", json!({ "docs": [{ "_index": "metrics" }] }), "metrics"),
        ("/logs/_msearch", json!([{ "index": "logs" }, {}, { "index": "metrics" }, {}]), "metrics"),
        ("/logs/_msearch", json!([{ "index": ["logs", "*"] }, {}]), "*"),
        ("/logs/_msearch", json!([{ "indices": "logs,metrics" }, {}]), "metrics"),
        ("/logs/_msearch", json!([{}, { "query": lookup }]), "metrics"),
    ] {
        lacks(post(&desk, &token, path, &body).await, "pass-reads", Some(name));
    }
    let login = format!("Bearer {token}");
    let headers = [("authorization", &*login), ("content-type", "application/json")];
    for (body, name) in [
        (r#"{"query":{"terms":{"u":{"ind\u0065x":"metrics"}}}}"#, "metrics"),
        (r#"{"index":"metrics","index":"logs"}"#, "metrics"),
        (r#"{"a":1}{"index":"metrics"}"#, "metrics"),
        ("{/* a comment */}", "*"),
        ("{'query':{}}", "*"),
        ("{\"query\":", "*"),
        ("\u{feff}{}", "*"),
    ] {
        let answer = desk.send(Method::POST, "/logs/_search", &headers, body).await;
        lacks(answer, "pass-reads", Some(name));
        let answer = desk.send(Method::GET, "/logs/_search", &headers, body).await;
        lacks(answer, "pass-reads", Some(name));
    }
    assert!(received.lock().is_empty(), "{:?}", received.lock());
}

#[tokio::test]
async fn right_on_all_indices_passes_each_read() {
    let mut file = File::new();
    let token = file.add("admin", &["*"], &["pass-reads"]);
    let (desk, _) = desk_with(ServeConfig::default().with_tokens(Some(file.open()))).await;
    for path in ["/_search", "/*/_search", "/_mget", "/_search/scroll"] {
        post(&desk, &token, path, &json!({ "scroll_id": "abc" })).await.is(200);
    }
    ask(&desk, &token, Method::GET, "/_cat/indices", &Value::Null).await.is(200);
    ask(&desk, &token, Method::GET, "/_security/user", &Value::Null).await.fails(400, "not_passed");
}

#[tokio::test]
async fn passed_writes_need_their_verb() {
    let (desk, token, received) = desk(&["pass-writes"]).await;
    post(&desk, &token, "/logs/_doc", &json!({})).await.is(200);
    ask(&desk, &token, Method::PUT, "/app-1", &json!({ "mappings": {} })).await.is(200);
    ask(&desk, &token, Method::PUT, "/logs/_mapping", &json!({ "properties": {} })).await.is(200);
    let item = |index: &str| json!({ "index": { "_index": index } });
    post(&desk, &token, "/_bulk", &json!([item("logs"), {}, item("app-1"), {}])).await.is(200);
    received.lock().clear();
    for (method, path) in [
        (Method::PUT, "/metrics/_doc/1"),
        (Method::POST, "/metrics/_update/1"),
        (Method::DELETE, "/metrics/_doc/1"),
        (Method::PUT, "/stock/_doc/1"),
    ] {
        let answer = ask(&desk, &token, method, path, &json!({ "doc": {} })).await;
        lacks(answer, "write", path.split('/').nth(1));
    }
    for (method, path) in [
        (Method::DELETE, "/metrics"),
        (Method::PUT, "/metrics/_settings"),
        (Method::PUT, "/metrics/_mapping"),
    ] {
        let answer = ask(&desk, &token, method, path, &json!({})).await;
        lacks(answer, "pass-writes", Some("metrics"));
    }
    lacks(ask(&desk, &token, Method::PUT, "/new", &json!({})).await, "create", Some("new"));
    // One item of another index refuses the bulk.
    for body in [json!([item("logs"), {}, item("metrics"), {}]), json!([item("stock"), {}])] {
        for path in ["/_bulk", "/logs/_bulk"] {
            let answer = post(&desk, &token, path, &body).await;
            assert_eq!(answer.status, 403, "{}", answer.text);
        }
    }
    // A reader of nothing gets no mapping that shows documents of another index.
    let lookup = json!({ "runtime": { "x": { "type": "lookup", "target_index": "metrics" } } });
    let answer = ask(&desk, &token, Method::PUT, "/logs/_mapping", &lookup).await;
    lacks(answer, "pass-reads", Some("metrics"));
    let answer = ask(&desk, &token, Method::PUT, "/app-2", &json!({ "mappings": lookup })).await;
    lacks(answer, "pass-reads", Some("metrics"));
    lacks(post(&desk, &token, "/logs/_search", &json!({})).await, "pass-reads", Some("logs"));
    assert!(received.lock().is_empty(), "{:?}", received.lock());
}

#[tokio::test]
async fn odd_paths_of_documents_need_a_right() {
    let (desk, token, received) = desk(&["read", "pass-reads"]).await;
    for path in [
        "/stock/_doc/a/",
        "/stock//_doc/a",
        "//stock/_doc/a",
        "/%73tock/_doc/a",
        "/./stock/_doc/a",
        "/logs/../stock/_doc/a",
        "/logs%2F..%2Fstock/_doc/a",
        "http://localhost/stock/_doc/a",
        "/stock/_source/a?index=logs",
    ] {
        let answer = ask(&desk, &token, Method::GET, path, &Value::Null).await;
        assert!(matches!(answer.status.as_u16(), 400 | 403), "{path}: {}", answer.text);
        let answer = ask(&desk, &token, Method::HEAD, path, &Value::Null).await;
        assert!(matches!(answer.status.as_u16(), 400 | 403), "{path}: {}", answer.text);
    }
    assert!(received.lock().is_empty(), "{:?}", received.lock());
}

#[tokio::test]
async fn mapping_of_a_new_collection_shows_no_other_index() {
    let mut file = File::new();
    let token = file.add("shop", &["app-*"], &["create", "pass-reads"]);
    let config = ServeConfig::default().with_tokens(Some(file.open()));
    let (desk, _) = desk_with(config.with_create_collections(true)).await;
    let lookup = json!({ "runtime": { "x": { "type": "lookup", "target_index": "metrics" } } });
    let answer = ask(&desk, &token, Method::PUT, "/app-1", &json!({ "mappings": lookup })).await;
    lacks(answer, "pass-reads", Some("metrics"));
    let plain = json!({ "mappings": { "properties": { "n": { "type": "long" } } } });
    ask(&desk, &token, Method::PUT, "/app-1", &plain).await.is(200);
}

#[tokio::test]
async fn verbs_of_collections_pass_nothing() {
    let (desk, token, received) = desk(&["read", "write", "create"]).await;
    for path in ["/logs/_doc/1", "/app-1/_doc/1"] {
        let answer = ask(&desk, &token, Method::GET, path, &Value::Null).await;
        assert_eq!(answer.status, 403, "{}", answer.text);
        let answer = ask(&desk, &token, Method::PUT, path, &json!({})).await;
        lacks(answer, "pass-writes", path.split('/').nth(1));
    }
    lacks(post(&desk, &token, "/logs/_search", &json!({})).await, "pass-reads", Some("logs"));
    let bulk = json!([{ "index": { "_index": "logs" } }, {}]);
    lacks(post(&desk, &token, "/_bulk", &bulk).await, "pass-writes", Some("logs"));
    assert!(received.lock().is_empty(), "{:?}", received.lock());
}

#[tokio::test]
async fn verbs_of_passage_reach_no_document_of_the_domain() {
    let mut file = File::new();
    let token = file.add("admin", &["*"], &["pass-reads", "pass-writes"]);
    let (desk, _) = desk_with(ServeConfig::default().with_tokens(Some(file.open()))).await;
    let answer = ask(&desk, &token, Method::GET, "/stock/_doc/1", &Value::Null).await;
    lacks(answer, "read", Some("stock"));
    let answer = ask(&desk, &token, Method::PUT, "/stock/_doc/1", &json!({})).await;
    lacks(answer, "write", Some("stock"));
    let bulk = json!([{ "index": { "_index": "stock" } }, {}]);
    lacks(post(&desk, &token, "/_bulk", &bulk).await, "write", Some("stock"));
}
