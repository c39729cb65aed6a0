//! Documents and transactions.

use serde_json::{Value, json};
use txn_core::Raw;
use txn_fixtures::fixture::Fixture;
use txn_serve::ServeConfig;

use super::desk::Desk;

/// A gateway in front of the server of a fixture. The domain has the collections stock and orders.
pub(crate) async fn desk(fixture: &Fixture) -> Desk {
    let domain = fixture.domain().await;
    for name in ["stock", "orders"] {
        let made = domain.create_collection::<Raw>(&fixture.name(name), None).await;
        made.expect("creates");
    }
    let servers = Some((*fixture.store).clone());
    Desk::of(domain, ServeConfig::default().with_servers(servers))
}

/// The content that a plain client reads.
async fn plain(fixture: &Fixture, index: &str, id: &str) -> Value {
    let path = format!("/{index}/_source/{id}");
    let mut content = fixture.plain.ok("GET", &path, None).await;
    if let Some(fields) = content.as_object_mut() {
        // The engine's own fields.
        fields.retain(|name, _| name != "transaction_tid" && !name.starts_with("transaction_"));
    }
    content
}

pub(crate) async fn clients_write_and_read(fixture: &Fixture) {
    let desk = desk(fixture).await;
    bulk_is_atomic_and_visible_to_plain_clients(fixture, &desk).await;
    conditions_and_partial_updates_hold(fixture, &desk).await;
    client_computes_between_read_and_commit(fixture, &desk).await;
    fixture.settle(&desk.domain).await;
}

async fn bulk_is_atomic_and_visible_to_plain_clients(fixture: &Fixture, desk: &Desk) {
    let (stock, orders) = (fixture.name("stock"), fixture.name("orders"));
    let lines = [
        json!({ "index": { "_index": stock, "_id": "apple" } }),
        json!({ "left": 10 }),
        json!({ "create": { "_index": orders, "_id": "1" } }),
        json!({ "item": "apple" }),
    ];
    let done = desk.bulk("/_bulk?refresh=true", &lines).await.is(200);
    assert_eq!(
        (&done["errors"], &done["items"][1]["create"]["status"]),
        (&json!(false), &json!(201))
    );
    assert_eq!(plain(fixture, &stock, "apple").await, json!({ "left": 10 }));
    let found = desk.post(&format!("/{orders}/_search"), &json!({})).await.is(200);
    assert_eq!(found["hits"]["total"]["value"], 1, "{found}");
    // The second order exists, so that the stock keeps its value.
    let lines = [
        json!({ "update": { "_id": "apple" } }),
        json!({ "doc": { "left": 9 } }),
        json!({ "create": { "_index": orders, "_id": "1" } }),
        json!({ "item": "pear" }),
    ];
    let refused = desk.bulk(&format!("/{stock}/_bulk"), &lines).await.fails(409, "refused");
    assert_eq!(refused["items"][0]["update"]["status"], 424);
    assert_eq!(plain(fixture, &stock, "apple").await, json!({ "left": 10 }));
}

async fn conditions_and_partial_updates_hold(fixture: &Fixture, desk: &Desk) {
    let stock = fixture.name("stock");
    let path = format!("/{stock}/_doc/pear");
    let put = desk.put(&path, &json!({ "left": 10, "kind": "fruit" })).await.is(201);
    let condition =
        format!("if_seq_no={}&if_primary_term={}", put["_seq_no"], put["_primary_term"]);
    let update = json!({ "doc": { "left": 9 } });
    desk.post(&format!("/{stock}/_update/pear"), &update).await.is(200);
    desk.put(&format!("{path}?{condition}"), &json!({})).await.fails(409, "refused");
    assert_eq!(desk.content(&path).await, json!({ "left": 9, "kind": "fruit" }));
    assert_eq!(plain(fixture, &stock, "pear").await, json!({ "left": 9, "kind": "fruit" }));
    let got = desk.get(&path).await.is(200);
    let condition =
        format!("if_seq_no={}&if_primary_term={}", got["_seq_no"], got["_primary_term"]);
    let deleted = desk.delete(&format!("{path}?{condition}")).await.is(200);
    assert_eq!(deleted["result"], "deleted");
    assert_eq!(desk.get(&path).await.status, 404);
}

async fn client_computes_between_read_and_commit(fixture: &Fixture, desk: &Desk) {
    let (stock, orders) = (fixture.name("stock"), fixture.name("orders"));
    let target = |collection: &str, id: &str| json!({ "collection": collection, "id": id });
    let insert =
        |id: &str| json!({ "insert": { "target": target(&stock, id), "document": { "left": 3 } } });
    let operations = json!({ "operations": [insert("plum"), insert("fig")] });
    let done = desk.post("/_txn?wait_for=apply", &operations).await.is(200);
    let tid = done["tid"].as_str().expect("a tid");
    assert_eq!(desk.get(&format!("/_txn/{tid}")).await.is(200)["outcome"], "committed");
    let targets = json!({ "targets": [target(&stock, "plum"), target(&orders, "2")] });
    let read = desk.post("/_txn/read", &targets).await.is(200);
    let reads: Vec<Value> = read["documents"]
        .as_array()
        .expect("documents")
        .iter()
        .map(|it| json!({ "target": it["target"], "token": it["token"] }))
        .collect();
    let commit = |reads: &[Value], left: i64| {
        let apple =
            json!({ "merge": { "target": target(&stock, "plum"), "patch": { "left": left } } });
        let order =
            json!({ "put": { "target": target(&orders, "2"), "document": { "left": left } } });
        json!({ "reads": reads, "operations": [apple, order] })
    };
    desk.put(&format!("/{stock}/_doc/plum"), &json!({ "left": 8 })).await.is(200);
    let changed = desk.post("/_txn/commit", &commit(&reads, 2)).await.fails(409, "changed");
    let again = &changed["changed"][0];
    assert_eq!((&again["document"], &changed["changed"][1]), (&json!({ "left": 8 }), &Value::Null));
    let reads = [json!({ "target": again["target"], "token": again["token"] }), reads[1].clone()];
    desk.post("/_txn/commit?wait_for=apply", &commit(&reads, 7)).await.is(200);
    for (index, id) in [(&stock, "plum"), (&orders, "2")] {
        assert_eq!(plain(fixture, index, id).await, json!({ "left": 7 }));
    }
}
