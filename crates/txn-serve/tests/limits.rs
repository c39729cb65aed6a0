//! Limits: beyond them a request is refused at once, and nothing happens.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use txn_core::store::MemoryStore;
use txn_core::{Error, Options, Raw};
use txn_serve::ServeConfig;

use super::desk::{Desk, add, text};

async fn desk(config: ServeConfig) -> Desk {
    Desk::with(Arc::new(MemoryStore::new()), config.with_create_collections(true)).await
}

#[tokio::test]
async fn too_large_requests_are_refused() {
    let desk = desk(ServeConfig::default().with_max_body(500).with_max_documents(2)).await;
    desk.put("/stock/_doc/a", &json!({ "text": "x".repeat(500) })).await.fails(413, "too_large");
    let delete = json!({ "delete": { "_index": "stock", "_id": "a" } });
    let lines = [delete.clone(), delete.clone(), delete];
    desk.bulk("/_bulk", &lines).await.fails(413, "too_large");
    let targets: Vec<Value> =
        (0..3).map(|id| json!({ "collection": "stock", "id": id.to_string() })).collect();
    desk.put("/stock/_doc/a", &json!({ "n": 1 })).await.is(201);
    desk.post("/_txn/read", &json!({ "targets": targets })).await.fails(413, "too_large");
    let operations: Vec<Value> = (0..3).map(|_| add("stock", "a", 1)).collect();
    desk.post("/_txn", &json!({ "operations": operations })).await.fails(413, "too_large");
    assert_eq!(desk.content("/stock/_doc/a").await, json!({ "n": 1 }));
}

#[tokio::test]
async fn contents_that_a_request_reads_are_bounded() {
    let write = async |config: ServeConfig| {
        let desk = desk(config).await;
        for n in 0..600 {
            let document = json!({ "n": n, "filler": "x".repeat(1_000) });
            desk.put(&format!("/stock/_doc/{n}"), &document).await.is(201);
        }
        desk
    };
    let of = |ids: std::ops::Range<u32>| -> (Value, Value) {
        let target = |n: u32| json!({ "collection": "stock", "id": n.to_string() });
        let read = |n: u32| json!({ "target": target(n), "token": "old" });
        let targets = json!({ "targets": ids.clone().map(target).collect::<Vec<_>>() });
        (targets, json!({ "reads": ids.map(read).collect::<Vec<_>>() }))
    };
    let small = ServeConfig::default().with_max_answer(500_000);
    let desk = write(small).await;
    let (reads, commit) = of(0..400);
    desk.post("/_txn/read", &reads).await.is(200);
    desk.post("/_txn/commit", &commit).await.fails(409, "changed");
    let (reads, commit) = of(0..600);
    desk.post("/_txn/read", &reads).await.fails(413, "large_answer");
    desk.post("/_txn/commit", &commit).await.fails(413, "large_answer");
    // The contents count among the bytes of all requests, and are given back.
    let config = ServeConfig::default().with_max_body(64 << 10).with_max_buffered(800 << 10);
    let desk = write(config).await;
    for _ in 0..3 {
        let (reads, _) = of(0..500);
        let documents = desk.post("/_txn/read", &reads).await.is(200);
        assert_eq!(documents["documents"].as_array().map(Vec::len), Some(500));
    }
    let config = ServeConfig::default().with_max_body(64 << 10).with_max_buffered(300 << 10);
    let desk = write(config).await;
    let (reads, commit) = of(0..500);
    // No pause would make room for so much.
    desk.post("/_txn/read", &reads).await.fails(413, "large_answer");
    desk.post("/_txn/commit", &commit).await.fails(413, "large_answer");
    let write =
        |n: u32| [json!({ "index": { "_index": "stock", "_id": n.to_string() } }), json!({})];
    let lines: Vec<Value> = (0..500).flat_map(write).collect();
    desk.bulk("/_bulk", &lines).await.fails(413, "large_answer");
    assert_eq!(desk.content("/stock/_doc/1").await["n"], 1);
}

/// More documents than one read of the store has keep their order.
#[tokio::test]
async fn many_documents_keep_their_order() {
    let desk = desk(ServeConfig::default()).await;
    let bulk = |round: u32| -> Vec<Value> {
        let lines =
            (0..1_200).map(|n| json!({ "index": { "_index": "stock", "_id": n.to_string() } }));
        lines
            .zip((0..1_200).map(|n| json!({ "n": n, "round": round })))
            .flat_map(|(a, b)| [a, b])
            .collect()
    };
    for (round, result) in [(0, "created"), (1, "updated")] {
        let answer = desk.bulk("/_bulk", &bulk(round)).await.is(200);
        let items = answer["items"].as_array().expect("a list");
        assert_eq!(items.len(), 1_200);
        for (n, item) in items.iter().enumerate() {
            let item = &item["index"];
            assert_eq!((&item["_id"], &item["result"]), (&json!(n.to_string()), &json!(result)));
        }
    }
    let target = |n: u32| json!({ "collection": "stock", "id": n.to_string() });
    let targets = json!({ "targets": (0..1_200).map(target).collect::<Vec<_>>() });
    let answer = desk.post("/_txn/read", &targets).await.is(200);
    let documents = answer["documents"].as_array().expect("a list");
    let found: Vec<&Value> = documents.iter().map(|found| &found["document"]["n"]).collect();
    assert_eq!(found, (0..1_200).map(|n| json!(n)).collect::<Vec<_>>().iter().collect::<Vec<_>>());
}

#[tokio::test]
async fn requests_beyond_the_permits_are_refused() {
    let desk = Arc::new(desk(ServeConfig::default().with_max_requests(1)).await);
    let stock = desk.domain.create_collection::<Raw>("stock", None).await.expect("creates");
    // A transaction of this process holds the document, so that a request waits for it.
    let options = Options::default().with_lock_mode(txn_core::LockMode::AtRead);
    let tx = desk.domain.begin(&options).expect("begins");
    tx.put(&stock, "a", &Raw::new("{}")).expect("writes");
    assert!(tx.get(&stock, "b").await.expect("locks").is_none());
    let waiting = {
        let desk = desk.clone();
        let lines = text(&[json!({ "create": { "_id": "b" } }), json!({})]);
        tokio::spawn(async move {
            let headers = [("content-type", "application/x-ndjson")];
            desk.send(hyper::Method::POST, "/stock/_bulk", &headers, lines).await
        })
    };
    let mut refused = false;
    for _ in 0..500 {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let answer = desk.get("/stock/_doc/none").await;
        if answer.status == 429 {
            answer.fails(429, "overloaded");
            refused = true;
            break;
        }
    }
    assert!(refused, "the second request was never refused");
    // Probes have no limit.
    desk.get("/readyz").await.is(200);
    tx.rollback().await;
    waiting.await.expect("no panic").is(200);
    assert_eq!(desk.get("/stock/_doc/none").await.status, 404);
}

#[tokio::test]
async fn bodies_of_all_requests_are_bounded() {
    let config = ServeConfig::default().with_max_body(64 << 10).with_max_buffered(64 << 10);
    let desk = Arc::new(desk(config).await);
    desk.put("/stock/_doc/a", &json!({ "n": 1 })).await.is(201);
    // A body without a known length counts as the largest one.
    let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
    let body = Stalled(Some(receiver));
    let request = hyper::Request::builder()
        .method("PUT")
        .uri("/stock/_doc/b")
        .header("content-type", "application/json")
        .body(body)
        .expect("a request");
    let server = desk.server.clone();
    let waiting = tokio::spawn(async move { server.answer(request).await.status() });
    tokio::time::sleep(Duration::from_millis(50)).await;
    desk.put("/stock/_doc/c", &json!({ "n": 1 })).await.fails(429, "overloaded");
    assert_eq!(desk.content("/stock/_doc/a").await, json!({ "n": 1 }));
    drop(sender);
    assert_eq!(waiting.await.expect("no panic"), 400);
    desk.put("/stock/_doc/c", &json!({ "n": 1 })).await.is(201);
}

/// A body that never comes, and breaks off when the channel closes.
struct Stalled(Option<tokio::sync::oneshot::Receiver<()>>);

impl hyper::body::Body for Stalled {
    type Data = bytes::Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<bytes::Bytes>, std::io::Error>>> {
        let Some(receiver) = &mut self.0 else { return std::task::Poll::Ready(None) };
        match std::pin::Pin::new(receiver).poll(context) {
            std::task::Poll::Pending => std::task::Poll::Pending,
            std::task::Poll::Ready(_) => {
                self.0 = None;
                std::task::Poll::Ready(Some(Err(std::io::Error::other("cut"))))
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn slow_body_is_refused() {
    let desk = desk(ServeConfig::default()).await;
    let (_sender, receiver) = tokio::sync::oneshot::channel::<()>();
    let request = hyper::Request::put("/stock/_doc/b")
        .header("content-type", "application/json")
        .body(Stalled(Some(receiver)))
        .expect("a request");
    assert_eq!(desk.server.answer(request).await.status(), 408);
}

#[tokio::test]
async fn impossible_settings_are_refused() {
    let desk = desk(ServeConfig::default()).await;
    for config in [
        ServeConfig::default().with_max_requests(0),
        ServeConfig::default().with_max_buffered(1),
        ServeConfig::default().with_timeout(Duration::ZERO),
    ] {
        assert!(txn_serve::Server::new(&desk.domain, config).is_err());
    }
}

#[tokio::test]
async fn transaction_that_waits_in_vain_is_a_conflict() {
    let desk = desk(ServeConfig::default().with_timeout(Duration::from_millis(200))).await;
    let stock = desk.domain.create_collection::<Raw>("stock", None).await.expect("creates");
    let held = desk.domain.transact::<_, Error, _>(async |tx| tx.put(&stock, "a", &Raw::new("{}")));
    held.await.expect("writes");
    let options = Options::default().with_lock_mode(txn_core::LockMode::AtRead);
    let tx = desk.domain.begin(&options).expect("begins");
    tx.get(&stock, "a").await.expect("locks");
    desk.put("/stock/_doc/a", &json!({ "n": 1 })).await.fails(409, "conflict");
    tx.rollback().await;
    desk.put("/stock/_doc/a", &json!({ "n": 1 })).await.is(200);
}
