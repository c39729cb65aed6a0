//! Writes to indices that are no collections.

use serde_json::{Value, json};
use txn_fixtures::fixture::Fixture;

use super::desk::Desk;
use super::documents::desk;

pub(crate) async fn writes_pass_unless_they_reach_a_collection(fixture: &Fixture) {
    let desk = desk(fixture).await;
    other_indices_are_written_as_on_the_servers(fixture, &desk).await;
    no_write_reaches_a_collection_by_another_name(fixture, &desk).await;
    fixture.settle(&desk.domain).await;
}

async fn other_indices_are_written_as_on_the_servers(fixture: &Fixture, desk: &Desk) {
    let (notes, later) = (fixture.name("notes"), fixture.name("later"));
    let mappings = json!({ "mappings": { "properties": { "text": { "type": "keyword" } } } });
    let made = desk.put(&format!("/{notes}"), &mappings).await.is(200);
    assert_eq!(made["acknowledged"], true);
    let fields = json!({ "properties": { "n": { "type": "long" } } });
    desk.put(&format!("/{notes}/_mapping"), &fields).await.is(200);
    let settings = json!({ "index": { "refresh_interval": "5s" } });
    desk.put(&format!("/{notes}/_settings"), &settings).await.is(200);
    let put = desk.put(&format!("/{notes}/_doc/a"), &json!({ "n": 1 })).await.is(201);
    assert_eq!((&put["_version"], &put["_seq_no"]), (&json!(1), &json!(0)));
    let update = json!({ "doc": { "n": 2 } });
    desk.post(&format!("/{notes}/_update/a"), &update).await.is(200);
    // The servers take a bulk in part, and make a missing index.
    let lines = [
        json!({ "create": { "_index": notes, "_id": "a" } }),
        json!({ "n": 9 }),
        json!({ "index": { "_index": later } }),
        json!({ "n": 3 }),
    ];
    let bulk = desk.bulk("/_bulk?refresh=true", &lines).await.is(200);
    assert_eq!(bulk["errors"], true, "{bulk}");
    assert_eq!(bulk["items"][1]["index"]["status"], 201, "{bulk}");
    assert_eq!(desk.content(&format!("/{notes}/_doc/a")).await, json!({ "n": 2 }));
    let counted = desk.get(&format!("/{later}/_count")).await.is(200);
    assert_eq!(counted["count"], 1);
    desk.delete(&format!("/{notes}/_doc/a")).await.is(200);
    for index in [&notes, &later] {
        desk.delete(&format!("/{index}")).await.is(200);
    }
    desk.get(&format!("/{notes}/_search")).await.is(404);
}

async fn no_write_reaches_a_collection_by_another_name(fixture: &Fixture, desk: &Desk) {
    let (stock, notes, other) =
        (fixture.name("stock"), fixture.name("notes"), fixture.name("other"));
    let apple = format!("/{stock}/_doc/apple");
    desk.put(&apple, &json!({ "left": 10 })).await.is(201);
    desk.put(&format!("/{notes}"), &json!({})).await.is(200);
    let actions = json!({ "actions": [{ "add": { "index": stock, "alias": other } }] });
    fixture.plain.ok("POST", "/_aliases", Some(actions.to_string())).await;

    // A write under the new name is a transaction of the collection.
    let got = desk.put(&format!("/{other}/_doc/pear"), &json!({ "left": 3 })).await.is(201);
    assert_eq!(got["_index"], json!(stock), "{got}");
    assert_eq!(desk.content(&format!("/{stock}/_doc/pear")).await, json!({ "left": 3 }));

    let date = format!("%3C{stock}%3E");
    let action = |index: &str| [json!({ "delete": { "_index": index, "_id": "apple" } })];
    for index in [format!("<{stock}>"), format!("{stock}*"), format!("{notes},{stock}")] {
        let answer = desk.bulk("/_bulk", &action(&index)).await;
        assert!(answer.status.is_client_error(), "{index}: {}", answer.text);
    }
    let reindex = json!({ "source": { "index": notes }, "dest": { "index": stock } });
    desk.post("/_reindex", &reindex).await.fails(400, "not_passed");
    let everything = json!({ "query": { "match_all": {} } });
    for index in [&stock, &other, &notes] {
        let path = format!("/{index}/_delete_by_query?refresh=true");
        desk.post(&path, &everything).await.fails(400, "not_passed");
    }
    for path in [
        format!("/{date}/_doc/apple"),
        format!("/{notes}/_clone/{other}"),
        format!("/{stock}/_mapping"),
        format!("/{other}/_settings"),
        format!("/{stock}-committed/_settings"),
    ] {
        let answer = desk.put(&path, &json!({})).await;
        assert!(answer.status.is_client_error(), "{path}: {}", answer.text);
    }
    for index in [&stock, &other] {
        desk.delete(&format!("/{index}")).await.fails(400, "not_passed");
    }
    let mixed = [action(&stock), action(&notes)].concat();
    let mixed = desk.bulk("/_bulk", &mixed).await.fails(400, "mixed");
    assert_eq!(mixed["items"][1]["delete"]["status"], 400, "{mixed}");
    assert_eq!(desk.content(&apple).await, json!({ "left": 10 }));
    pipelines_are_refused(fixture, desk, &notes, &stock).await;
    desk.delete(&format!("/{notes}")).await.is(200);
}

/// A pipeline could send a document to another index.
async fn pipelines_are_refused(fixture: &Fixture, desk: &Desk, notes: &str, stock: &str) {
    let pipeline = fixture.name("pipeline");
    // The servers of the tests have no processors.
    let empty = json!({ "processors": [] });
    let path = format!("/_ingest/pipeline/{pipeline}");
    fixture.plain.ok("PUT", &path, Some(empty.to_string())).await;
    let write = |query: &str| format!("/{notes}/_doc/evil{query}");
    let by_name = write(&format!("?pipeline={pipeline}"));
    desk.put(&by_name, &json!({})).await.fails(400, "not_passed");
    for setting in ["default_pipeline", "final_pipeline"] {
        let set = |value: Value| json!({ "index": { (setting): value } });
        let settings = format!("/{notes}/_settings");
        desk.put(&settings, &set(json!(pipeline))).await.is(200);
        desk.put(&write(""), &json!({})).await.fails(400, "not_passed");
        desk.put(&settings, &set(json!("_none"))).await.is(200);
    }
    assert_eq!(desk.get(&format!("/{stock}/_doc/evil")).await.status, 404);
    desk.put(&write(""), &json!({})).await.is(201);
    fixture.plain.ok("DELETE", &path, None).await;
}
