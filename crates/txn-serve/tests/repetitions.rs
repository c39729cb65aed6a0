//! Requests that arrive again, under an `Idempotency-Key` and without one.

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use txn_core::store::MemoryStore;
use txn_serve::ServeConfig;
use txn_sim::{FaultPlan, FaultStore};

use super::desk::{Desk, add, text, told};

/// The maximum number of seeds until an outcome is unknown.
///
/// The requests go over real connections, so a seed does not repeat its faults exactly.
const MOST_SEEDS: u64 = 1_000;

fn adding(amount: i64) -> Value {
    json!({ "operations": [add("stock", "a", amount)] })
}

/// A gateway with an unreliable store.
///
/// Once enabled, the store loses answers and applies writes late.
async fn unreliable(seed: u64) -> (Arc<FaultStore>, Desk) {
    let mut plan = FaultPlan::rough(seed).with_late_unknown(0.2).with_lost_unknown(0.2);
    plan.max_late = Duration::from_secs(2);
    let store = Arc::new(FaultStore::new(Arc::new(MemoryStore::new()), plan));
    store.set_enabled(false);
    let config = ServeConfig::default()
        .with_create_collections(true)
        .with_timeout(Duration::from_millis(60));
    let desk = Desk::with(store.clone(), config).await;
    (store, desk)
}

#[tokio::test]
async fn keyed_request_has_one_effect() {
    let desk = Desk::memory().await;
    desk.put("/stock/_doc/a", &json!({ "n": 1 })).await.is(201);
    let first = desk.keyed("/_txn", "k", &adding(1)).await;
    let again = desk.keyed("/_txn", "\"k\"", &adding(1)).await;
    assert_eq!((first.status, &first.text), (again.status, &again.text));
    let tids = [&first, &again].map(|answer| answer.header("x-transaction-id").to_owned());
    first.is(200);
    let outcome = desk.get(&format!("/_txn/{}", tids[0])).await.is(200);
    assert_eq!((&outcome["outcome"], &*tids[1]), (&json!("committed"), ""));
    assert_eq!(desk.content("/stock/_doc/a").await, json!({ "n": 2 }));
    desk.keyed("/_txn", "k", &adding(2)).await.fails(422, "key_reused");
    desk.keyed("/_txn?wait_for=apply", "k", &adding(1)).await.fails(422, "key_reused");
    desk.keyed("/_txn", "", &adding(1)).await.fails(400, "invalid");
    desk.keyed("/_txn", &"k".repeat(257), &adding(1)).await.fails(400, "invalid");
}

#[tokio::test]
async fn keyed_refusal_is_repeated() {
    let desk = Desk::file().await;
    desk.put("/stock/_doc/a", &json!({ "n": 1 })).await.is(201);
    let refused = desk.keyed("/_txn", "k", &adding(-2)).await;
    desk.put("/stock/_doc/a", &json!({ "n": 9 })).await.is(200);
    let again = desk.keyed("/_txn", "k", &adding(-2)).await;
    assert_eq!(refused.text, again.text);
    again.fails(409, "refused");
    assert_eq!(desk.content("/stock/_doc/a").await, json!({ "n": 9 }));
}

/// A stored answer has no room for contents, which may be larger than any document.
#[tokio::test]
async fn repeated_conflict_shows_no_contents() {
    let desk = Desk::memory().await;
    let filler = "x".repeat(400_000);
    for n in 0..30 {
        let document = json!({ "n": n, "filler": filler });
        desk.put(&format!("/stock/_doc/{n}"), &document).await.is(201);
    }
    let read = |n: u32| json!({ "target": { "collection": "stock", "id": n.to_string() }, "token": "old" });
    let stale = json!({ "reads": (0..30).map(read).collect::<Vec<_>>(), "operations": [add("stock", "0", 1)] });
    let first = desk.keyed("/_txn/commit", "k", &stale).await.fails(409, "changed");
    let changed = first["changed"].as_array().expect("a list");
    assert_eq!((changed.len(), &changed[7]["document"]["n"]), (30, &json!(7)));
    let again = desk.keyed("/_txn/commit", "k", &stale).await.fails(409, "changed");
    assert_eq!(again["changed"], json!([]));
    assert_eq!(again["detail"], first["detail"]);
}

#[tokio::test]
async fn key_without_an_effect_is_refused() {
    let desk = Desk::memory().await;
    desk.keyed("/_requests/r", "k", &adding(1)).await.fails(400, "unsupported");
    let token = json!({ "token": 1 });
    desk.keyed("/_locks/c/a/renew", "k", &token).await.fails(400, "unsupported");
    desk.keyed("/_outbox/dead/t%2Fa%2F1/retry", "k", &json!({})).await.fails(400, "unsupported");
    // A read has no effect.
    desk.keyed("/_txn/read", "k", &json!({ "targets": [] })).await.is(200);
}

#[tokio::test]
async fn keyed_bulk_keeps_its_new_ids() {
    let desk = Desk::memory().await;
    let headers = [("content-type", "application/x-ndjson"), ("idempotency-key", "k")];
    let body = text(&[json!({ "index": { "_index": "stock" } }), json!({ "n": 1 })]);
    let first = desk.send(Method::POST, "/_bulk", &headers, body.clone()).await;
    let again = desk.send(Method::POST, "/_bulk", &headers, body).await;
    assert_eq!(first.text, again.text);
    first.is(200);
}

/// Sends each request until it is answered.
#[tokio::test(start_paused = true)]
async fn keyed_requests_survive_unknown_outcomes() {
    let mut unknown = 0;
    for seed in 0..MOST_SEEDS {
        if seed >= 16 && unknown > 0 {
            break;
        }
        let (store, desk) = unreliable(seed).await;
        desk.put("/stock/_doc/a", &json!({ "n": 0 })).await.is(201);
        desk.keyed("/_txn", "first", &adding(0)).await.is(200);
        store.set_enabled(true);
        for key in 0..4 {
            let mut tries = 0;
            loop {
                let answer = desk.keyed("/_txn", &format!("k{key}"), &adding(1)).await;
                match answer.status.as_u16() {
                    200 => break,
                    // A passing failure, or an unknown outcome: a client repeats it.
                    409 | 429 | 503 => {
                        let body = answer.json();
                        unknown += u32::from(*told(&body, "code") == "unknown");
                        assert!(*told(&body, "code") != "refused", "{body}");
                    }
                    status => panic!("{status}: {}", answer.text),
                }
                tries += 1;
                assert!(tries < 500, "seed {seed}: k{key} was never answered");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        store.set_enabled(false);
        store.settle().await;
        assert_eq!(desk.content("/stock/_doc/a").await, json!({ "n": 4 }), "seed {seed}");
    }
    assert!(unknown > 0, "no outcome was unknown: the test shows nothing");
}

/// Without a key, an unknown outcome names the tid.
///
/// No client repeats a request after this status.
#[tokio::test(start_paused = true)]
async fn unknown_outcome_without_a_key_names_the_tid() {
    let (mut unknown, mut outcomes) = (0, 0);
    for seed in 0..MOST_SEEDS {
        if seed >= 40 && unknown > 0 && outcomes > 0 {
            break;
        }
        let (store, desk) = unreliable(seed).await;
        for id in ["a", "b"] {
            desk.put(&format!("/stock/_doc/{id}"), &json!({ "n": 0 })).await.is(201);
        }
        store.set_enabled(true);
        let both = json!({ "operations": [add("stock", "a", 1), add("stock", "b", 1)] });
        let answer = desk.post("/_txn", &both).await;
        store.set_enabled(false);
        store.settle().await;
        let status = answer.status.as_u16();
        let body = answer.json();
        let counted = desk.content("/stock/_doc/a").await["n"] == 1;
        match (status, told(&body, "code").as_str()) {
            (200, _) => assert!(counted),
            (500, Some("unknown")) => {
                unknown += 1;
                if let Some(tid) = body["tid"].as_str() {
                    let outcome = desk.get(&format!("/_txn/{tid}")).await.is(200);
                    let committed = desk.content("/stock/_doc/a").await["n"] == 1;
                    assert_eq!(outcome["outcome"] == "committed", committed, "{outcome}");
                    outcomes += 1;
                }
            }
            (409, Some("conflict")) | (429 | 503, Some(_)) => assert!(!counted, "{body}"),
            _ => panic!("{status}: {body}"),
        }
    }
    assert!(unknown > 0 && outcomes > 0, "{unknown} unknown, {outcomes} with a tid");
}
