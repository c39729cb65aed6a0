//! Reads for update, locks, events and submitted requests.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use txn_core::Raw;
use txn_fixtures::fixture::{Fixture, soon};
use txn_serve::ServeConfig;

use super::desk::{Desk, add};

const CLIENTS: i64 = 8;
const EACH: i64 = 5;

async fn desk(fixture: &Fixture, config: ServeConfig) -> Desk {
    let domain = fixture.domain().await;
    domain.create_collection::<Raw>(&fixture.name("stock"), None).await.expect("creates");
    Desk::of(domain, config)
}

/// Tries to add one to the document `a` until a commit succeeds.
///
/// The sum is computed from a read for update.
async fn increment(desk: &Desk, stock: &str) {
    let target = json!({ "collection": stock, "id": "a" });
    loop {
        let read = json!({ "targets": [target], "for_update": true });
        let read = desk.post("/_txn/read", &read).await.is(200);
        let found = &read["documents"][0];
        let n = found["document"]["n"].as_i64().expect("a number");
        let commit = json!({
            "reads": [{ "target": target, "token": found["token"] }],
            "operations": [{ "put": { "target": target, "document": { "n": n + 1 } } }],
            "reservations": read["reservation"].as_str().into_iter().collect::<Vec<_>>(),
        });
        let answer = desk.post("/_txn/commit", &commit).await;
        if answer.status == 200 {
            return;
        }
        answer.fails(409, "changed");
    }
}

pub(crate) async fn closures_of_clients_lose_no_update(fixture: &Fixture) {
    let desk = Arc::new(desk(fixture, ServeConfig::default()).await);
    let stock = fixture.name("stock");
    let path = format!("/{stock}/_doc/a");
    desk.put(&path, &json!({ "n": 0 })).await.is(201);
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (desk, stock) = (desk.clone(), stock.clone());
        clients.spawn(async move {
            for _ in 0..EACH {
                increment(&desk, &stock).await;
            }
        });
    }
    soon(clients.join_all()).await;
    assert_eq!(desk.content(&path).await, json!({ "n": CLIENTS * EACH }));
    fixture.settle(&desk.domain).await;
}

pub(crate) async fn systems_work_over_http(fixture: &Fixture) {
    let desk = desk(fixture, ServeConfig::default().with_processor(true)).await;
    let socket = desk.listen().await;
    let stock = fixture.name("stock");
    let path = format!("/{stock}/_doc/a");
    desk.put(&path, &json!({ "n": 1 })).await.is(201);

    let lock = "/_locks/reports/monthly";
    let owner = |name: &str| json!({ "owner": name, "lease_ms": 60_000 });
    let granted = desk.post(lock, &owner("one")).await.is(200);
    desk.post(lock, &owner("two")).await.fails(409, "held");
    let commit = |token: &Value| {
        json!({
            "operations": [add(&stock, "a", 1)],
            "events": [{ "topic": "orders", "key": "1", "payload": {} }],
            "locks": [{ "category": "reports", "id": "monthly", "token": token }],
        })
    };
    let token = &granted["token"];
    desk.post("/_txn/commit", &commit(token)).await.is(200);
    assert_eq!(desk.get("/_outbox").await.is(200)["events"], 1);
    desk.post(&format!("{lock}/release"), &json!({ "token": token })).await.is(200);
    desk.post("/_txn/commit", &commit(token)).await.fails(409, "lost");

    desk.post("/_requests/one", &json!({ "operations": [add(&stock, "a", 1)] })).await.is(202);
    soon(async {
        while desk.get("/_requests/one").await.is(200)["state"] != "finished" {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(desk.content(&path).await, json!({ "n": 3 }));
    socket.stop.send(()).expect("runs");
    assert!(soon(socket.served).await.expect("no panic"), "a request was cut");
    fixture.settle(&desk.domain).await;
}
