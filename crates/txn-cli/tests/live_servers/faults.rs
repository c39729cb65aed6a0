//! Planted faults: each is found, and the printed request mends it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use txn_core::Domain;
use txn_core::ids::Day;
use txn_core::store::{CollectionSpec, Role, Store};
use txn_fixtures::plain_store;

use super::desk::ServerDesk;
use super::owners::{self, Untimed, overwrite, past};
use super::ran::codes;

/// The message of an answer with this code.
#[track_caller]
pub(crate) fn message(answer: &Value, code: &str) -> Value {
    let messages = answer["messages"].as_array().expect("a list");
    let found = messages.iter().find(|message| message["code"] == code);
    found.unwrap_or_else(|| panic!("no {code}: {answer}")).clone()
}

fn today() -> Day {
    Day::of_unix_time(SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock"))
}

/// The beginning of the names of the domain's partitions.
fn prefix(desk: &ServerDesk) -> String {
    format!("txn-{}-", desk.names.domain.replace('-', "."))
}

/// The partition of today.
fn partition(desk: &ServerDesk) -> String {
    let status = desk.run("--json status").json(0);
    let today = today().to_string();
    let partitions = status["partitions"].as_array().expect("a list").clone();
    let found = partitions.iter().find(|part| part["day"] == today.as_str()).expect("today");
    found["name"].as_str().expect("a name").to_owned()
}

pub(crate) fn rogue_write_is_named_by_status(desk: &ServerDesk) {
    let load = desk.load();
    let tid = desk.wait(owners::die_after_commit(desk.store.clone(), &desk.names)).to_string();
    desk.wait(plain_store::change(&*desk.store, &desk.names.stock, "shelf", overwrite));
    let line = format!("NOT WELL [participant_damaged]: {}/shelf", desk.names.stock);
    desk.run("status").says(1, &[&line, &tid, "docs/failures.md#damage"]);
    let verified = desk.run("--json verify").json(1);
    assert_eq!(codes(&verified), ["participant_damaged"]);
    // The remedy: the right content, in a transaction.
    let domain = desk.domain(txn_core::Config::default());
    desk.wait(async {
        let (stock, _) = owners::collections(&domain, &desk.names).await;
        let write = domain
            .transact::<_, txn_core::Error, _>(async |tx| tx.put(&stock, "shelf", &owners::body()));
        write.await.expect("writes");
        domain.shutdown(Duration::from_secs(60)).await;
    });
    drop(load);
    desk.run("recover").says(0, &["0 open transactions"]);
    desk.run("status").says(0, &["is well"]);
}

pub(crate) fn faults_of_indices_are_found_and_mended(desk: &ServerDesk) {
    let (stock, partition) = (&desk.names.stock, partition(desk));
    let settings = |index: &str, body: Value| {
        desk.ask("PUT", &format!("/{index}/_settings"), body);
    };
    let faults: [(&str, &str, &dyn Fn()); 5] = [
        ("index_blocked", stock, &|| settings(stock, json!({ "index.blocks.write": true }))),
        ("index_blocked", &partition, &|| {
            settings(&partition, json!({ "index.blocks.read_only": true }));
        }),
        ("final_pipeline", stock, &|| {
            settings(stock, json!({ "index.final_pipeline": "none-such" }));
        }),
        ("translog_async", stock, &|| {
            settings(stock, json!({ "index.translog.durability": "async" }));
        }),
        ("index_closed", stock, &|| {
            drop(desk.ask("POST", &format!("/{stock}/_close"), Value::Null));
        }),
    ];
    for (code, index, plant) in faults {
        desk.run("status").says(0, &["is well"]);
        plant();
        let line = format!("NOT WELL [{code}]: the index {index} ");
        desk.run("status").says(1, &[&line, "Do: "]);
        let doctor = desk.run("--json doctor").json(1);
        let found = message(&doctor, code);
        assert_eq!(found["subject"], *index, "{doctor}");
        desk.mend(&found);
        // An opened index needs a moment.
        super::desk::wait_until("a well domain", || desk.run("doctor").code == 0);
    }
}

pub(crate) fn template_is_found_if_it_spoils_a_partition(desk: &ServerDesk) {
    let prefix = prefix(desk);
    let template = format!("{}-template", desk.names.domain);
    let path = format!("/_index_template/{template}");
    let bodies = [
        json!({ "template": { "settings": { "index.number_of_replicas": 3 } } }),
        json!({ "template": { "settings": { "index.final_pipeline": "none-such" } } }),
        json!({ "template": { "settings": { "index.blocks.write": true } } }),
        json!({ "template": { "settings": { "index.lifecycle.name": "none-such" } } }),
        json!({ "template": { "mappings": { "_source": { "enabled": false } } } }),
        json!({ "template": { "mappings": { "_source": { "excludes": ["body"] } } } }),
        json!({ "template": { "mappings": { "_routing": { "required": true } } } }),
        json!({ "template": { "mappings": { "properties": { "state": { "type": "text" } } } } }),
        json!({ "template": { "mappings": { "runtime": { "state": { "type": "keyword" } } } } }),
        json!({ "data_stream": {} }),
    ];
    let mut spoiling = 0;
    for (number, body) in bodies.iter().enumerate() {
        let mut body = body.clone();
        body["index_patterns"] = json!([format!("{prefix}*")]);
        body["priority"] = json!(700);
        let (status, _) = desk.wait(desk.plain.text("PUT", &path, Some(body.to_string())));
        // Each server lacks some of the settings.
        if status != 200 {
            continue;
        }
        let name = format!("{prefix}{}-{number:016x}", today().plus(3));
        let spec = CollectionSpec {
            name: name.clone(),
            role: Role::Partition,
            create: true,
            mappings: None,
        };
        let made = desk.wait(desk.store.open_collection(&spec));
        desk.wait(desk.store.drop_collection(&name)).expect("drops");
        let found = desk.wait(desk.store.template_fault(&name)).expect("answers");
        assert_eq!(found.is_some(), made.is_err(), "{body}: {found:?}, {made:?}");
        spoiling += usize::from(found.is_some());
        if found.is_some() && spoiling == 1 {
            let line =
                format!("NOT WELL [template_spoils_partition]: the index template \"{template}\"");
            desk.run("status").says(1, &[&line]);
            let doctor = desk.run("--json doctor").json(1);
            desk.mend(&message(&doctor, "template_spoils_partition"));
            desk.run("doctor").says(0, &["ok  index templates"]);
            desk.ask("DELETE", &format!("/_index_template/{prefix}partitions"), Value::Null);
        }
        desk.ask("DELETE", &path, Value::Null);
    }
    assert!(spoiling >= 1, "no template spoils a partition");
}

pub(crate) fn missing_partition_is_explained(desk: &ServerDesk) {
    // The domain of this test was last opened yesterday.
    let other = ServerDesk::empty(&desk.url);
    let yesterday = past(Duration::from_secs(86_400));
    other.wait(async {
        let store = Untimed::over(other.store.clone());
        let domain = Domain::open_or_create(store, &other.names.domain, yesterday).await;
        domain.expect("opens").shutdown(Duration::from_secs(5)).await;
    });
    let prefix = prefix(&other);
    let path = format!("/_index_template/{}-template", other.names.domain);
    let body =
        json!({ "index_patterns": [format!("{prefix}*")], "priority": 700, "data_stream": {} });
    other.ask("PUT", &path, body);
    let tomorrow = format!("tomorrow, {}, has no partition yet", today().plus(1));
    other.run("status").says(
        1,
        &["NOT WELL [partition_missing]", &tomorrow, "NOT WELL [template_spoils_partition]"],
    );
    let doctor = other.run("--json doctor").json(1);
    other.mend(&message(&doctor, "template_spoils_partition"));
    other.run("status").says(0, &["is well"]);
    other.ask("DELETE", &path, Value::Null);
    other.ask("DELETE", &format!("/_index_template/{prefix}partitions"), Value::Null);
}

pub(crate) fn orphan_partition_is_found_and_deleted(desk: &ServerDesk) {
    let name = format!("{}{}-00000000000000ff", prefix(desk), today());
    let spec =
        CollectionSpec { name: name.clone(), role: Role::Partition, create: true, mappings: None };
    desk.wait(desk.store.open_collection(&spec)).expect("makes an orphan");
    let doctor = desk.run("--json doctor").json(0);
    let orphan = message(&doctor, "orphan_partition");
    assert_eq!(orphan["subject"], name);
    desk.mend(&orphan);
    let doctor = desk.run("--json doctor").json(0);
    assert!(!codes(&doctor).contains(&"orphan_partition"), "{doctor}");
}

pub(crate) fn deleted_participant_is_named_by_status(desk: &ServerDesk) {
    desk.wait(owners::die_after_commit(desk.store.clone(), &desk.names));
    desk.wait(plain_store::delete(&*desk.store, &desk.names.stock, "shelf"));
    desk.run("status").says(1, &["participant_damaged", "another client deleted the document"]);
}

pub(crate) fn missing_domain_is_told_from_a_silent_server(desk: &ServerDesk) {
    desk.run("no-such-verb").fails_by_usage("no-such-verb");
    // No server listens at this port.
    let failed = desk.run_at("http://127.0.0.1:9", "--json status").json(2);
    assert_eq!(codes(&failed), ["unavailable"]);
    // A server that answers is not silent.
    let failed = desk.run("--domain nowhere-at-all --json ls").json(2);
    assert_eq!(codes(&failed), ["misconfigured"]);
}
