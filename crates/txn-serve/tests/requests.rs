//! Requests that are submitted now and carried out by a processor.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hyper::Method;
use serde_json::{Value, json};
use txn_core::store::MemoryStore;
use txn_core::{Domain, Raw, Transaction};
use txn_requests::{Companion, Request, RequestError, Requests, RequestsConfig};
use txn_serve::ServeConfig;

use super::access::{File, ask, lacks};
use super::desk::{Desk, add, config};

fn adding(amount: i64) -> Value {
    json!({ "operations": [add("stock", "a", amount)] })
}

async fn state(desk: &Desk, id: &str) -> String {
    let body = desk.get(&format!("/_requests/{id}")).await.is(200);
    body["state"].as_str().expect("a state").to_owned()
}

#[tokio::test]
async fn processor_carries_out_submitted_requests() {
    let store = Arc::new(MemoryStore::new());
    let domain = Domain::open_or_create(store, "shop", config()).await.expect("opens");
    let settings = ServeConfig::default().with_create_collections(true).with_processor(true);
    let desk = Desk::of(domain, settings);
    desk.put("/stock/_doc/a", &json!({ "n": 1 })).await.is(201);
    let mut request = adding(2);
    request["events"] = json!([{ "topic": "orders", "key": "1", "payload": 1 }]);
    let socket = desk.listen().await;
    let submitted = desk.post("/_requests/one", &request).await.is(202);
    assert_eq!((&submitted["id"], &submitted["operations"]), (&json!("one"), &json!(1)));
    // The same submission again has no second effect.
    desk.put("/_requests/one", &request).await.is(202);
    desk.post("/_requests/one", &adding(3)).await.fails(422, "key_reused");
    desk.post("/_requests/low", &adding(-9)).await.is(202);
    while state(&desk, "one").await != "finished" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    while state(&desk, "low").await != "rolled-back" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(desk.content("/stock/_doc/a").await, json!({ "n": 3 }));
    assert_eq!(desk.get("/_outbox").await.is(200)["events"], 1);
    let refused = desk.get("/_requests/low").await.is(200);
    assert!(refused["reason"].as_str().is_some_and(|why| why.contains("minimum")), "{refused}");
    socket.stop.send(()).expect("serves");
    assert!(socket.served.await.expect("no panic"));
}

/// A companion that never lets a request commit.
#[derive(Debug)]
struct Fails;

#[async_trait]
impl Companion for Fails {
    async fn accompany(&self, _: &Transaction, _: &Request) -> Result<(), RequestError> {
        panic!("the companion fails")
    }
}

#[tokio::test]
async fn quarantined_request_is_on_the_stuck_page() {
    let desk = Desk::memory().await;
    let page = desk.get("/_console/stuck").await.page(200);
    assert!(page.contains("no submitted requests"), "{page}");
    desk.put("/stock/_doc/a", &json!({ "n": 1 })).await.is(201);
    desk.post("/_requests/doomed", &adding(2)).await.is(202);
    let settings = RequestsConfig::default().with_max_failures(1);
    let requests = Requests::open_with(&desk.domain, settings, Arc::new(Fails)).await;
    let requests = requests.expect("opens");
    assert_eq!(requests.process_open(None).await.expect("looks").quarantined, 1);
    requests.shutdown(Duration::from_secs(5)).await;
    let page = desk.get("/_console/stuck").await.page(200);
    assert!(page.contains("doomed") && page.contains("txn requests release"), "{page}");
}

#[tokio::test]
async fn request_without_a_processor_waits_and_is_cancelled() {
    let desk = Desk::memory().await;
    desk.put("/stock/_doc/a", &json!({ "n": 1 })).await.is(201);
    desk.post("/_requests/one", &adding(2)).await.is(202);
    assert_eq!(state(&desk, "one").await, "created");
    let list = desk.get("/_requests").await.is(200);
    assert_eq!(list["requests"][0]["id"], "one", "{list}");
    assert_eq!(desk.get("/_requests?application=x").await.is(200)["requests"], json!([]));
    let why = json!({ "why": "sold out" });
    let cancelled = desk.post("/_requests/one/cancel", &why).await.is(200);
    assert_eq!(
        (&cancelled["state"], &cancelled["reason"]),
        (&json!("rolled-back"), &json!("cancelled: sold out"))
    );
    desk.send(Method::POST, "/_requests/one/cancel", &[], "").await.is(200);
    assert_eq!(desk.content("/stock/_doc/a").await, json!({ "n": 1 }));
}

#[tokio::test]
async fn malformed_requests_are_refused() {
    let desk = Desk::memory().await;
    for path in ["/_requests", "/_requests/one"] {
        desk.get(path).await.fails(404, "not_found");
    }
    desk.post("/_requests/one/cancel", &json!({})).await.fails(404, "not_found");
    desk.post("/_requests/one", &adding(1)).await.fails(404, "no_collection");
    let overview = desk.domain.admin().overview().await.expect("reads");
    assert!(overview.collections.is_empty(), "{overview:?}");
    desk.put("/stock/_doc/a", &json!({ "n": 1 })).await.is(201);
    for (body, code) in [
        (json!({}), "invalid"),
        (json!({ "operations": [] }), "invalid"),
        (
            json!({ "operations": [], "after_commit": [{ "method": "POST", "url": "http://a" }] }),
            "unsupported",
        ),
    ] {
        desk.post("/_requests/one", &body).await.fails(400, code);
    }
    desk.post("/_requests/one%0A", &adding(1)).await.fails(400, "invalid");
    desk.post("/_requests/one", &adding(1)).await.is(202);
    desk.get("/_requests/two").await.fails(404, "not_found");
    let long = json!({ "why": "x".repeat(1_001) });
    desk.post("/_requests/one/cancel", &long).await.fails(400, "invalid");
    desk.get("/_requests?limit=0").await.fails(400, "invalid");
}

#[tokio::test]
async fn requests_need_their_verbs() {
    let mut file = File::new();
    let shop = file.add("shop", &["stock"], &["write", "submit"]);
    let writer = file.add("writer", &["stock"], &["read", "write"]);
    let submitter = file.add("submitter", &[], &["submit"]);
    let operator = file.add("operator", &[], &["operate"]);
    let settings = ServeConfig::default().with_tokens(Some(file.open()));
    let desk = Desk::with(Arc::new(MemoryStore::new()), settings).await;
    desk.domain.create_collection::<Raw>("stock", None).await.expect("creates");
    let path = "/_requests/one";
    let post = async |token: &str, path: &str, body: &Value| {
        ask(&desk, token, Method::POST, path, body).await
    };
    let get =
        async |token: &str, path: &str| ask(&desk, token, Method::GET, path, &Value::Null).await;
    lacks(post(&writer, path, &adding(1)).await, "submit", None);
    lacks(post(&submitter, path, &adding(1)).await, "write", Some("stock"));
    let mut emits = adding(1);
    emits["events"] = json!([{ "topic": "orders", "key": "1", "payload": 1 }]);
    lacks(post(&shop, path, &emits).await, "emit", Some("orders"));
    post(&shop, path, &adding(1)).await.is(202);
    get(&shop, path).await.is(200);
    lacks(get(&submitter, path).await, "write", Some("stock"));
    lacks(post(&submitter, "/_requests/one/cancel", &json!({})).await, "write", Some("stock"));
    lacks(get(&writer, path).await, "submit", None);
    lacks(get(&shop, "/_requests").await, "operate", None);
    get(&operator, "/_requests").await.is(200);
    post(&shop, "/_requests/one/cancel", &json!({})).await.is(200);
}
