//! Events that commit with the operations of a client, and dead letters.

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use txn_core::store::MemoryStore;
use txn_core::{Domain, Transaction};
use txn_outbox::{Event, Failure, Outbox, OutboxConfig, Processor, ProcessorConfig, Topics};
use txn_serve::ServeConfig;

use super::access::{File, ask, lacks};
use super::desk::{Desk, add, config};

fn event(topic: &str, key: &str) -> Value {
    json!({ "topic": topic, "key": key, "payload": { "by": key } })
}

fn put(id: &str) -> Value {
    json!({ "put": { "target": { "collection": "stock", "id": id }, "document": { "n": 1 } } })
}

/// A processor that sends the payloads of its events.
///
/// The processor fails for the key `bad`.
async fn processor(desk: &Desk) -> (Outbox, Processor, mpsc::UnboundedReceiver<String>) {
    let outbox = Outbox::open(&desk.domain, OutboxConfig::default()).await.expect("opens");
    let (sender, payloads) = mpsc::unbounded_channel();
    let handle = async |sender: &mpsc::UnboundedSender<String>, _: &Transaction, event: &Event| {
        if event.queue.key() == "bad" {
            return Err(Failure::permanent("unfit"));
        }
        sender.send(event.payload.get().to_owned()).expect("the test waits");
        Ok(())
    };
    let topics = Topics::new().with_transaction("orders", sender, handle);
    let processor = outbox.start(ProcessorConfig::default(), topics).await.expect("starts");
    (outbox, processor, payloads)
}

#[tokio::test]
async fn events_need_no_operations() {
    let desk = Desk::memory().await;
    let both = json!({ "events": [event("orders", "1"), event("orders", "2")] });
    let body = desk.keyed("/_outbox", "k", &both).await.is(200);
    assert_eq!(body["events"].as_array().map(Vec::len), Some(2), "{body}");
    assert_eq!(desk.keyed("/_outbox", "k", &both).await.is(200), body);
    assert_eq!(desk.get("/_outbox").await.is(200)["events"], 2);
    // In a transaction, too.
    let alone = json!({ "events": [event("orders", "3")] });
    desk.post("/_txn", &alone).await.is(200);
    assert_eq!(desk.get("/_outbox").await.is(200)["events"], 3);
    desk.post("/_outbox", &json!({ "events": [] })).await.fails(400, "invalid");
    desk.post("/_outbox", &json!({ "events": [event("http-requests", "1")] }))
        .await
        .fails(400, "invalid");
}

#[tokio::test]
async fn events_commit_with_their_operations() {
    let desk = Desk::memory().await;
    let both =
        json!({ "operations": [put("a")], "events": [event("orders", "1"), event("orders", "2")] });
    let body = desk.keyed("/_txn", "k", &both).await.is(200);
    assert_eq!(body["events"].as_array().map(Vec::len), Some(2), "{body}");
    // A repetition emits nothing.
    assert_eq!(desk.keyed("/_txn", "k", &both).await.is(200), body);
    let backlog = desk.get("/_outbox").await.is(200);
    assert_eq!((&backlog["events"], &backlog["topics"]["orders"]), (&json!(2), &json!(2)));
    // A refused operation emits nothing.
    let low = json!({ "operations": [add("stock", "a", -9)], "events": [event("orders", "3")] });
    desk.post("/_txn", &low).await.fails(409, "refused");
    let read = json!({ "target": { "collection": "stock", "id": "a" }, "token": "absent" });
    let stale = json!({ "reads": [read], "events": [event("orders", "3")] });
    desk.post("/_txn/commit", &stale).await.fails(409, "changed");
    assert_eq!(desk.get("/_outbox").await.is(200)["events"], 2);
    desk.post("/_txn", &json!({ "operations": [], "events": [event("orders", "3")] }))
        .await
        .is(200);
    assert_eq!(desk.get("/_outbox").await.is(200)["events"], 3);
    let (_, processor, mut payloads) = processor(&desk).await;
    let mut found = Vec::new();
    for _ in 0..3 {
        found.push(payloads.recv().await.expect("an event"));
    }
    found.sort();
    assert_eq!(found, [r#"{"by":"1"}"#, r#"{"by":"2"}"#, r#"{"by":"3"}"#]);
    assert!(processor.stop(Duration::from_secs(10)).await);
}

#[tokio::test]
async fn dead_letters_are_retried_and_dropped() {
    let desk = Desk::memory().await;
    let (outbox, processor, _payloads) = processor(&desk).await;
    let emit = json!({ "events": [event("orders", "bad")] });
    desk.post("/_txn/commit", &emit).await.is(200);
    let died = async || loop {
        let list = desk.get("/_outbox/dead").await.is(200);
        if let Some(id) = list["dead_letters"][0]["id"].as_str() {
            assert!(!list.to_string().contains("\"by\""), "no payload: {list}");
            return id.replace('/', "%2F");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let id = died().await;
    let page = desk.get("/_console/stuck").await.page(200);
    assert!(page.contains("<code>orders/") && page.contains("unfit"), "{page}");
    assert!(!page.contains("&quot;by&quot;"), "no payload: {page}");
    assert_eq!(desk.get("/_outbox/dead?topic=other").await.is(200)["dead_letters"], json!([]));
    desk.post(&format!("/_outbox/dead/{id}/retry"), &json!({})).await.is(200);
    // The retried event fails again.
    let id = died().await;
    assert!(processor.stop(Duration::from_secs(10)).await);
    desk.post(&format!("/_outbox/dead/{id}/drop"), &json!({})).await.is(200);
    desk.post(&format!("/_outbox/dead/{id}/drop"), &json!({})).await.fails(404, "not_found");
    assert!(outbox.source().dead_letters().await.expect("reads").letters.is_empty());
}

#[tokio::test]
async fn full_queue_is_no_answer_to_keep() {
    let settings = ServeConfig::default().with_create_collections(true).with_max_documents(20_000);
    let store = Arc::new(MemoryStore::new());
    let domain = config().with_max_documents(20_000);
    let domain = Domain::open_or_create(store, "shop", domain).await.expect("opens");
    let desk = Desk::of(domain, settings);
    let most = OutboxConfig::default().max_backlog;
    let events: Vec<Value> = (0..=most).map(|_| event("orders", "1")).collect();
    let commit = json!({ "operations": [put("a")], "events": events });
    desk.keyed("/_txn/commit", "k", &commit).await.fails(429, "overloaded");
    assert_eq!(desk.get("/_outbox").await.is(200)["events"], 0);
    assert_eq!(desk.get("/stock/_doc/a").await.status, 404);
    // Nothing is stored under the key, so another request may use it.
    let small = json!({ "operations": [put("a")], "events": [event("orders", "1")] });
    desk.keyed("/_txn/commit", "k", &small).await.is(200);
}

#[tokio::test]
async fn malformed_events_are_refused() {
    let desk = Desk::memory().await;
    for bad in [
        event("", "k"),
        event("a/b", "k"),
        event("t", ""),
        json!({ "topic": "t", "key": "k" }),
        // Processors send such requests and carry out such updates with rights of their own.
        event("http-requests", "k"),
        event("dependent-updates", "k"),
    ] {
        let body = json!({ "operations": [put("a")], "events": [bad] });
        desk.post("/_txn", &body).await.fails(400, "invalid");
    }
    desk.get("/_outbox/dead?limit=0").await.fails(400, "invalid");
    desk.post("/_outbox/dead/x/retry", &json!({})).await.fails(400, "invalid");
    // Neither a valid view nor a refused request has created more than the operations need.
    let fresh = Desk::memory().await;
    for path in ["/_outbox", "/_outbox/dead"] {
        fresh.get(path).await.fails(404, "not_found");
    }
    fresh.post("/_outbox/dead/t%2F1%2Fk/retry", &json!({})).await.fails(404, "not_found");
    let overview = fresh.domain.admin().overview().await.expect("reads");
    assert!(overview.collections.is_empty(), "{overview:?}");
}

#[tokio::test]
async fn events_need_their_verbs() {
    let mut file = File::new();
    let shop = file.add("shop", &["orders"], &["emit"]);
    let operator = file.add("operator", &[], &["operate"]);
    let desk = Desk::with(
        Arc::new(MemoryStore::new()),
        ServeConfig::default().with_tokens(Some(file.open())),
    )
    .await;
    let post = async |token: &str, path: &str, body: &Value| {
        ask(&desk, token, Method::POST, path, body).await
    };
    post(&shop, "/_txn", &json!({ "operations": [], "events": [event("orders", "1")] }))
        .await
        .is(200);
    let other = json!({ "operations": [], "events": [event("bills", "1")] });
    lacks(post(&shop, "/_txn", &other).await, "emit", Some("bills"));
    let both = json!({ "operations": [put("a")], "events": [event("orders", "1")] });
    lacks(post(&shop, "/_txn", &both).await, "write", Some("stock"));
    for path in ["/_outbox", "/_outbox/dead"] {
        lacks(ask(&desk, &shop, Method::GET, path, &Value::Null).await, "operate", None);
        ask(&desk, &operator, Method::GET, path, &Value::Null).await.is(200);
    }
    for path in ["/_outbox/dead/orders%2F1%2F1/retry", "/_outbox/dead/orders%2F1%2F1/drop"] {
        lacks(post(&shop, path, &json!({})).await, "operate", None);
        lacks(post(&operator, path, &json!({})).await, "emit", Some("orders"));
    }
}
