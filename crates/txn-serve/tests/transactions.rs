//! Transactions as data: operations, reads with tokens, conditional commits, outcomes.

use serde_json::{Value, json};
use txn_core::{Options, Raw};

use super::desk::{Desk, add};

fn target(id: &str) -> Value {
    json!({ "collection": "stock", "id": id })
}

async fn operations(desk: &Desk) {
    let put = json!({ "put": { "target": target("a"), "document": { "n": 9 } } });
    let body = desk.post("/_txn", &json!({ "operations": [put] })).await.is(200);
    assert_eq!(body["outcome"], "committed");
    let insert =
        json!({ "insert": { "target": { "collection": "orders", "id": "1" }, "document": {} } });
    let both =
        json!({ "operations": [add("stock", "a", -3), insert], "metadata": { "by": "test" } });
    let answer = desk.post("/_txn?wait_for=apply", &both).await;
    let tid = answer.header("x-transaction-id").to_owned();
    let body = answer.is(200);
    assert_eq!(body["tid"], *tid);
    let outcome = desk.get(&format!("/_txn/{tid}")).await.is(200);
    assert_eq!(outcome["outcome"], "committed");
    // The second run inserts again, so none of its operations happens.
    let refused = desk.post("/_txn", &both).await;
    assert_eq!(refused.header("content-type"), "application/problem+json");
    let refused = refused.fails(409, "exists");
    assert_eq!(
        (&refused["refusal"]["operation"], &refused["refusal"]["why"]),
        (&json!(1), &json!("exists"))
    );
    assert_eq!(desk.content("/stock/_doc/a").await, json!({ "n": 6 }));
    let low = json!({ "operations": [add("stock", "a", -7)] });
    let refused = desk.post("/_txn", &low).await.fails(409, "refused");
    assert_eq!(refused["refusal"]["why"], "below_minimum");
}

#[tokio::test]
async fn operations_happen_together_in_memory() {
    operations(&Desk::memory().await).await;
}

#[tokio::test]
async fn operations_happen_together_in_a_file() {
    operations(&Desk::file().await).await;
}

#[tokio::test]
async fn commit_needs_the_contents_that_were_read() {
    let desk = Desk::memory().await;
    desk.put("/stock/_doc/a", &json!({ "n": 1 })).await.is(201);
    let read = json!({ "targets": [target("a"), target("b")] });
    let body = desk.post("/_txn/read", &read).await.is(200);
    let documents = body["documents"].as_array().expect("documents");
    assert_eq!(documents[0]["document"], json!({ "n": 1 }));
    assert_eq!(
        (&documents[1]["document"], &documents[1]["token"]),
        (&Value::Null, &json!("absent"))
    );
    let reads: Vec<Value> = documents
        .iter()
        .map(|it| json!({ "target": it["target"], "token": it["token"] }))
        .collect();
    let put = |n: i64| {
        let put = json!({ "put": { "target": target("b"), "document": { "n": n } } });
        json!({ "reads": reads, "operations": [put] })
    };
    desk.post("/_txn/commit", &put(2)).await.is(200);
    let changed = desk.post("/_txn/commit", &put(3)).await.fails(409, "changed");
    let changed = changed["changed"].as_array().expect("changed documents");
    assert_eq!(changed.len(), 1);
    assert_eq!(
        (&changed[0]["target"], &changed[0]["document"]),
        (&target("b"), &json!({ "n": 2 }))
    );
    // The next attempt needs no second read.
    let reads = json!([reads[0], { "target": target("b"), "token": changed[0]["token"] }]);
    let next = json!({ "reads": reads, "operations": [add("stock", "b", 5)] });
    desk.post("/_txn/commit", &next).await.is(200);
    assert_eq!(desk.content("/stock/_doc/b").await, json!({ "n": 7 }));
    // Without operations the request only asks whether the contents are still these.
    desk.post("/_txn/commit", &json!({ "reads": [reads[0]] })).await.is(200);
    desk.post("/_txn/commit", &json!({ "reads": [reads[1]] })).await.fails(409, "changed");
}

#[tokio::test]
async fn changed_contents_keep_all_digits() {
    let desk = Desk::memory().await;
    let headers = [("content-type", "application/json")];
    let text = r#"{"n":1234567890.12345678901234567890}"#;
    desk.send(hyper::Method::PUT, "/stock/_doc/a", &headers, text).await.is(201);
    let read = desk.post("/_txn/read", &json!({ "targets": [target("a")] })).await;
    assert!(read.text.contains(text), "{}", read.text);
    let stale = json!({ "reads": [{ "target": target("a"), "token": "absent" }] });
    let changed = desk.post("/_txn/commit", &stale).await;
    assert!(changed.text.contains(text), "{}", changed.text);
    changed.fails(409, "changed");
}

#[tokio::test]
async fn concurrent_commits_lose_no_update() {
    let desk = std::sync::Arc::new(Desk::memory().await);
    desk.put("/stock/_doc/a", &json!({ "n": 0 })).await.is(201);
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let desk = desk.clone();
            tokio::spawn(async move {
                let body =
                    desk.post("/_txn/read", &json!({ "targets": [target("a")] })).await.is(200);
                let mut read = body["documents"][0].clone();
                loop {
                    let n = read["document"]["n"].as_i64().expect("a number");
                    let merge =
                        json!({ "merge": { "target": target("a"), "patch": { "n": n + 1 } } });
                    let reads = [json!({ "target": target("a"), "token": read["token"] })];
                    let commit = json!({ "reads": reads, "operations": [merge] });
                    let answer = desk.post("/_txn/commit", &commit).await;
                    if answer.status == 200 {
                        return;
                    }
                    read = answer.fails(409, "changed")["changed"][0].clone();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(desk.content("/stock/_doc/a").await, json!({ "n": 8 }));
}

#[tokio::test]
async fn outcome_is_told_by_tid() {
    let desk = Desk::memory().await;
    let stock = desk.domain.create_collection::<Raw>("stock", None).await.expect("creates");
    let tx = desk.domain.begin(&Options::default().with_own_record(true)).expect("begins");
    let tid = tx.tid().expect("has its own record");
    tx.put(&stock, "a", &Raw::new("{}")).expect("writes");
    tx.rollback().await;
    let outcome = desk.get(&format!("/_txn/{tid}")).await.is(200);
    assert_eq!(
        (&outcome["tid"], &outcome["outcome"]),
        (&json!(tid.to_string()), &json!("aborted"))
    );
    desk.get("/_txn/tid").await.fails(400, "invalid");
}

#[tokio::test]
async fn malformed_transactions_are_refused() {
    let desk = Desk::memory().await;
    let put = json!({ "put": { "target": target("a"), "document": {} } });
    for body in [
        json!({ "operations": [] }),
        json!({ "operation": [] }),
        json!({ "operations": [{ "script": {} }] }),
        json!({ "operations": [put], "application": "a" }),
        json!({ "operations": [put], "not_before_ms": 1 }),
    ] {
        desk.post("/_txn", &body).await.fails(400, "invalid");
    }
    desk.post("/_txn/read", &json!({ "targets": [], "lock": true })).await.fails(400, "invalid");
    let reserved = json!({ "collection": "shop-idempotency", "id": "a" });
    desk.post("/_txn/read", &json!({ "targets": [reserved] })).await.fails(400, "reserved");
    desk.post("/_txn?wait_for=ever", &json!({ "operations": [put] })).await.fails(400, "invalid");
}

#[tokio::test]
async fn collection_to_create_is_read_as_empty() {
    let desk = Desk::memory().await;
    let read = desk.post("/_txn/read", &json!({ "targets": [target("a")] })).await.is(200);
    assert_eq!(read["documents"][0]["token"], "absent", "{read}");
    desk.get("/stock/_doc/a").await.fails(404, "no_collection");
    let insert = json!({ "insert": { "target": target("b"), "document": { "n": 1 } } });
    let reads = json!([{ "target": target("a"), "token": "absent" }]);
    let commit = json!({ "reads": reads, "operations": [insert] });
    desk.post("/_txn/commit", &commit).await.is(200);
    assert_eq!(desk.content("/stock/_doc/b").await, json!({ "n": 1 }));
    desk.put("/stock/_doc/a", &json!({ "n": 2 })).await.is(201);
    desk.post("/_txn/commit", &commit).await.fails(409, "changed");
}
