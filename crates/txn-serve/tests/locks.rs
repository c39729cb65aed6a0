//! Locks of clients, and commits under a lock.

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use txn_core::store::MemoryStore;
use txn_lock::{LockConfig, LockService};
use txn_serve::ServeConfig;

use super::access::{File, ask, lacks};
use super::desk::{Desk, add};

const LOCK: &str = "/_locks/reports/monthly";

fn owner(name: &str) -> Value {
    json!({ "owner": name, "lease_ms": 60_000 })
}

async fn acquire(desk: &Desk, name: &str) -> Value {
    desk.post(LOCK, &owner(name)).await.is(200)
}

#[tokio::test]
async fn lock_has_one_holder_and_growing_tokens() {
    let desk = Desk::memory().await;
    assert_eq!(desk.get(LOCK).await.is(200)["holder"], Value::Null);
    let first = acquire(&desk, "a").await;
    let held = desk.post(LOCK, &owner("b")).await.fails(409, "held");
    assert_eq!(held["holder"]["name"], "a", "{held}");
    let look = desk.get(LOCK).await.is(200);
    assert_eq!((&look["holder"]["name"], &look["token"]), (&json!("a"), &first["token"]));
    let list = desk.get("/_locks").await.is(200);
    assert_eq!(list["locks"][0]["holder"]["name"], "a", "{list}");
    let token = json!({ "token": first["token"] });
    desk.post(&format!("{LOCK}/renew"), &token).await.is(200);
    assert_eq!(desk.post(&format!("{LOCK}/release"), &token).await.is(200)["released"], true);
    assert_eq!(desk.post(&format!("{LOCK}/release"), &token).await.is(200)["released"], false);
    desk.post(&format!("{LOCK}/renew"), &token).await.fails(409, "lost");
    let second = acquire(&desk, "b").await;
    assert!(second["token"].as_u64() > first["token"].as_u64(), "{second}");
    assert_eq!(second["was_abandoned"], false);
    assert_eq!(desk.get("/_locks?limit=1").await.is(200)["truncated"], false);
}

#[tokio::test]
async fn repeated_acquisition_has_one_grant() {
    let desk = Desk::memory().await;
    let first = desk.keyed(LOCK, "k", &owner("a")).await.is(200);
    let again = desk.keyed(LOCK, "k", &owner("a")).await.is(200);
    assert_eq!(first["token"], again["token"]);
    desk.keyed(LOCK, "other", &owner("a")).await.fails(409, "held");
}

#[tokio::test]
async fn grant_belongs_to_one_lock_and_request() {
    let desk = Desk::memory().await;
    let first = desk.keyed("/_locks/r/x", "y k", &owner("a")).await.is(200);
    // The names and the keys of both requests have the same letters.
    let second = desk.keyed("/_locks/r/x%20y", "k", &owner("a")).await.is(200);
    let release = desk.post("/_locks/r/x%20y/release", &json!({ "token": second["token"] })).await;
    assert_eq!(release.is(200)["released"], true);
    desk.post("/_locks/r/x/renew", &json!({ "token": first["token"] })).await.is(200);
    desk.post("/_locks/r/x", &owner("b")).await.fails(409, "held");
    // The lease of a grant never changes.
    let longer = json!({ "owner": "a", "lease_ms": 70_000 });
    desk.keyed("/_locks/r/x", "y k", &longer).await.fails(409, "held");
}

#[tokio::test]
async fn no_answer_shows_a_key() {
    let desk = Desk::memory().await;
    desk.keyed(LOCK, "secret-key", &owner("a")).await.is(200);
    for answer in [desk.post(LOCK, &owner("b")).await, desk.get("/_locks").await] {
        assert!(answer.text.contains("instance:lease-"), "{}", answer.text);
        assert!(!answer.text.contains("secret-key"), "{}", answer.text);
    }
}

#[tokio::test]
async fn each_gateway_renews_a_lock() {
    let store = Arc::new(MemoryStore::new());
    let one = Desk::with(store.clone(), ServeConfig::default()).await;
    let token = json!({ "token": acquire(&one, "a").await["token"] });
    one.domain.shutdown(Duration::from_secs(5)).await;
    let two = Desk::with(store, ServeConfig::default()).await;
    two.post(&format!("{LOCK}/renew"), &token).await.is(200);
    assert_eq!(two.post(&format!("{LOCK}/release"), &token).await.is(200)["released"], true);
}

#[tokio::test]
async fn expired_lock_is_taken_over() {
    let desk = Desk::memory().await;
    let short = json!({ "owner": "a", "lease_ms": 100 });
    let lost = desk.post(LOCK, &short).await.is(200);
    let waits = json!({ "owner": "b", "wait_ms": 20_000 });
    let next = desk.post(LOCK, &waits).await.is(200);
    assert_eq!(next["was_abandoned"], true, "{next}");
    let token = json!({ "token": lost["token"] });
    desk.post(&format!("{LOCK}/renew"), &token).await.fails(409, "lost");
    assert_eq!(desk.post(&format!("{LOCK}/release"), &token).await.is(200)["released"], false);
}

#[tokio::test]
async fn lock_of_a_process_is_not_renewed() {
    let desk = Desk::memory().await;
    let service = LockService::open(&desk.domain, LockConfig::default()).await.expect("opens");
    let guard = service.try_lock("reports", "monthly").await.expect("asks").expect("is free");
    desk.post(LOCK, &owner("a")).await.fails(409, "held");
    let token = json!({ "token": guard.token() });
    desk.post(&format!("{LOCK}/renew"), &token).await.fails(409, "lost");
    assert_eq!(desk.post(&format!("{LOCK}/release"), &token).await.is(200)["released"], false);
    guard.check().expect("is held");
    guard.unlock().await.expect("releases");
    acquire(&desk, "a").await;
    assert!(service.try_lock("reports", "monthly").await.expect("asks").is_none());
    service.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn commit_needs_its_lock() {
    let desk = Desk::memory().await;
    desk.put("/stock/_doc/a", &json!({ "n": 1 })).await.is(201);
    let commit = |token: &Value| {
        let lock = json!({ "category": "reports", "id": "monthly", "token": token });
        json!({ "operations": [add("stock", "a", 1)], "locks": [lock] })
    };
    desk.post("/_txn/commit", &commit(&json!(1))).await.fails(409, "lost");
    let token = acquire(&desk, "a").await["token"].clone();
    desk.post("/_txn/commit", &commit(&token)).await.is(200);
    desk.post(&format!("{LOCK}/release"), &json!({ "token": token })).await.is(200);
    desk.post("/_txn/commit", &commit(&token)).await.fails(409, "lost");
    let next = acquire(&desk, "b").await["token"].clone();
    desk.post("/_txn/commit", &commit(&token)).await.fails(409, "lost");
    desk.keyed("/_txn/commit", "k", &commit(&next)).await.is(200);
    assert_eq!(desk.content("/stock/_doc/a").await, json!({ "n": 3 }));
}

#[tokio::test]
async fn malformed_requests_for_locks_are_refused() {
    let desk = Desk::memory().await;
    for body in [
        json!({}),
        json!({ "owner": "" }),
        json!({ "owner": "a\n" }),
        json!({ "owner": "a", "lease_ms": 99 }),
        json!({ "owner": "a", "lease_ms": 3_600_001 }),
        json!({ "owner": "a", "wait_ms": 20_001 }),
        json!({ "owner": "a", "lease": 1 }),
    ] {
        desk.post(LOCK, &body).await.fails(400, "invalid");
    }
    desk.post("/_locks/a%2Fb/c", &owner("a")).await.fails(400, "invalid");
    desk.post(&format!("{LOCK}/renew"), &json!({})).await.fails(400, "invalid");
    desk.post(&format!("{LOCK}/renew"), &json!({ "token": 1 })).await.fails(409, "lost");
    desk.get("/_locks?limit=0").await.fails(400, "invalid");
    desk.get("/_locks/reports").await.fails(404, "not_found");
    // No request has created the collection.
    let name = desk.domain.collection_name("locks");
    let overview = desk.domain.admin().overview().await.expect("reads");
    assert!(!overview.collections.contains(&name), "{overview:?}");
}

#[tokio::test]
async fn locks_need_their_verbs() {
    let mut file = File::new();
    let worker = file.add("worker", &["reports"], &["lock"]);
    let operator = file.add("operator", &[], &["operate"]);
    let writer = file.add("writer", &["*"], &["read", "write", "create"]);
    let config =
        ServeConfig::default().with_create_collections(true).with_tokens(Some(file.open()));
    let desk = Desk::with(Arc::new(MemoryStore::new()), config).await;
    let post = async |token: &str, path: &str, body: &Value| {
        ask(&desk, token, Method::POST, path, body).await
    };
    let get =
        async |token: &str, path: &str| ask(&desk, token, Method::GET, path, &Value::Null).await;
    post(&worker, LOCK, &owner("a")).await.is(200);
    get(&worker, LOCK).await.is(200);
    lacks(post(&worker, "/_locks/other/a", &owner("a")).await, "lock", Some("other"));
    let token = json!({ "token": 1 });
    for path in ["renew", "release"] {
        lacks(post(&operator, &format!("{LOCK}/{path}"), &token).await, "lock", Some("reports"));
    }
    lacks(get(&operator, LOCK).await, "lock", Some("reports"));
    lacks(get(&worker, "/_locks").await, "operate", None);
    get(&operator, "/_locks").await.is(200);
    let lock = json!({ "category": "reports", "id": "monthly", "token": 1 });
    let commit = json!({ "operations": [add("stock", "a", 1)], "locks": [lock] });
    lacks(post(&worker, "/_txn/commit", &commit).await, "write", Some("stock"));
    let put = json!({ "put": { "target": { "collection": "stock", "id": "a" }, "document": {} } });
    let commit = json!({ "operations": [put], "locks": [lock] });
    lacks(post(&writer, "/_txn/commit", &commit).await, "lock", Some("reports"));
}
