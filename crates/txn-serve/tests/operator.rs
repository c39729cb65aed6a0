//! The views of operators.

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use txn_core::store::MemoryStore;
use txn_core::{LockMode, Options, Raw};
use txn_serve::ServeConfig;

use super::access::{File, ask, lacks};
use super::desk::Desk;

#[tokio::test]
async fn holder_of_a_lock_is_seen() {
    let desk = Desk::memory().await;
    desk.put("/stock/_doc/apple", &json!({ "left": 1 })).await.is(201);
    let stock = desk.domain.collection::<Raw>("stock").await.expect("opens");
    let options = Options::default().with_lock_mode(LockMode::AtRead).with_own_record(true);
    let tx = desk.domain.begin(&options).expect("begins");
    tx.get(&stock, "apple").await.expect("locks");
    let tid = tx.tid().expect("has its own record").to_string();
    let list = desk.get("/_txn").await.is(200);
    let row = &list["transactions"][0];
    assert_eq!((&row["tid"], &row["locks"]), (&json!(tid), &json!(1)), "{list}");
    for hidden in ["/_txn?label=fast", "/_txn?older=3600", "/_txn?state=committed"] {
        assert_eq!(desk.get(hidden).await.is(200)["transactions"], json!([]), "{hidden}");
    }
    let locks = desk.get("/_txn/locks").await.is(200);
    assert_eq!(locks["locks"][0]["holder"], tid, "{locks}");
    let report = desk.get(&format!("/_txn/transactions/{tid}")).await.is(200);
    assert_eq!(report["verdict"], "running", "{report}");
    assert!(report["next"].as_str().is_some_and(|next| next.contains("txn abort")), "{report}");
    let story = desk.get("/_txn/documents/stock/apple").await.is(200);
    assert_eq!((&story["exists"], &story["lock"]["holder"]), (&json!(true), &json!(tid)));
    let status = desk.get("/_txn/status").await.is(200);
    assert_eq!((&status["well"], &status["locks"]), (&json!(true), &json!(1)), "{status}");
    assert_eq!(desk.get("/_txn/hanging").await.is(200)["hanging"], json!([]));
    // The first look may be before the record of the transaction.
    desk.get("/_txn/hanging?older=0").await.is(200);
    let hanging = desk.get("/_txn/hanging?older=0").await.is(200);
    assert!(hanging["hanging"][0].to_string().contains(&tid), "{hanging}");
    let texts = format!("{list}{locks}{report}{story}{status}{hanging}");
    assert!(!texts.contains("left"), "no contents");
    tx.rollback().await;
    assert_eq!(desk.get("/_txn/locks").await.is(200)["locks"], json!([]));
}

#[tokio::test]
async fn waiter_and_hot_document_are_seen() {
    let desk = Desk::memory().await;
    desk.put("/stock/_doc/apple", &json!({ "left": 1 })).await.is(201);
    let stock = desk.domain.collection::<Raw>("stock").await.expect("opens");
    let options = Options::default()
        .with_lock_mode(LockMode::AtRead)
        .with_own_record(true)
        .with_label("restock");
    let tx = desk.domain.begin(&options).expect("begins");
    tx.get(&stock, "apple").await.expect("locks");
    let tid = tx.tid().expect("has its own record").to_string();
    let domain = desk.domain.clone();
    let waiting = tokio::spawn(async move {
        let desk = Desk::of(domain, ServeConfig::default());
        desk.put("/stock/_doc/apple", &json!({ "left": 2 })).await
    });
    let waiters = loop {
        let waiters = desk.get("/_txn/locks?waiting=true").await.is(200);
        if waiters["waiters"] != json!([]) {
            break waiters;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    let waiter = &waiters["waiters"][0];
    assert_eq!((&waiter["holder"], &waiter["holder_label"]), (&json!(tid), &json!("restock")));
    let story = desk.get("/_txn/documents/stock/apple").await.is(200);
    assert_eq!(story["waiters"][0]["tid"], waiter["tid"], "{story}");
    tx.rollback().await;
    waiting.await.expect("answers").is(200);
    let hot = desk.get("/_txn/hot?minutes=5").await.is(200);
    let document = &hot["documents"][0];
    assert_eq!((&document["id"], &document["last_holder"]), (&json!("apple"), &json!(tid)));
    assert_eq!(document["blocking_labels"], json!([{ "label": "restock", "waits": 1 }]));
    let compared = desk.get("/_txn/history?minutes=5&against=5").await.is(200);
    assert_eq!(
        (&compared["later"]["waits"], &compared["earlier"]["waits"]),
        (&json!(1), &json!(0))
    );
    assert!(!format!("{waiters}{story}{hot}{compared}").contains("left"), "no contents");
}

#[tokio::test]
async fn operators_need_their_verb() {
    let mut file = File::new();
    let admin = file.add("admin", &["*"], &["read", "write", "create", "pass-reads", "metrics"]);
    let operator = file.add("operator", &[], &["operate"]);
    let config = ServeConfig::default().with_tokens(Some(file.open()));
    let desk = Desk::with(Arc::new(MemoryStore::new()), config).await;
    desk.domain.create_collection::<Raw>("stock", None).await.expect("creates");
    let tid = "3db4dc0b-ea02-11f1-8001-6dd9f108c5aa";
    let paths = [
        "/_txn/status",
        "/_txn/hanging",
        "/_txn",
        "/_txn/locks",
        "/_txn/processes",
        "/_txn/history",
        "/_txn/hot",
        &format!("/_txn/transactions/{tid}"),
        "/_txn/documents/stock/apple",
    ];
    for path in paths {
        lacks(ask(&desk, &admin, Method::GET, path, &Value::Null).await, "operate", None);
        ask(&desk, &operator, Method::GET, path, &Value::Null).await.is(200);
    }
    let get = async |path: &str| ask(&desk, &operator, Method::GET, path, &Value::Null).await;
    get("/_txn/locks?limit=0").await.fails(400, "invalid");
    get("/_txn/hanging?older=young").await.fails(400, "invalid");
    get("/_txn/hot?minutes=0").await.fails(400, "invalid");
    get("/_txn/hot?against=1").await.fails(400, "unsupported");
    get("/_txn/history?against=5").await.fails(400, "invalid");
    get("/_txn/history?minutes=5&against=4").await.fails(400, "invalid");
    get("/_txn/locks?waiting=perhaps").await.fails(400, "invalid");
    get("/_txn?state=other").await.fails(400, "invalid");
    get("/_txn/locks?older=1").await.fails(400, "unsupported");
    get("/_txn/transactions/x").await.fails(400, "invalid");
    get("/_txn/documents/other/apple").await.fails(404, "no_collection");
    lacks(get("/stock/_doc/apple").await, "read", Some("stock"));
}
