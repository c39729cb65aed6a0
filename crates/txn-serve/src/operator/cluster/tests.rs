//! A sound cluster has no finding. Each test plants one fault in its answers.

use std::time::Duration;

use serde_json::{Value, json};
use txn_core::ids::Day;

use super::super::message::{Message, Severity};
use super::Parts;
use super::facts::Facts;
use super::judge::judge;

/// 2026-11-27, at noon.
const NOW: Duration = Duration::from_secs(1_795_780_800);

const PARTITION: &str = "txn-shop-2026.11.27-00000000000000aa";

fn parts() -> Parts {
    let today = Day::of_unix_time(NOW);
    Parts {
        domain: "shop".to_owned(),
        today,
        partitions: vec![(today, PARTITION.to_owned())],
        collections: vec!["stock".to_owned()],
    }
}

/// The answers of a sound cluster with three nodes. The cluster has Elasticsearch 8.
fn sound() -> Facts {
    let settings = json!({
        "cluster.max_shards_per_node": "1000",
        "cluster.blocks.read_only": "false",
        "cluster.blocks.read_only_allow_delete": "false",
        "cluster.routing.allocation.disk.threshold_enabled": "true",
        "cluster.routing.allocation.disk.watermark.low": "85%",
        "cluster.routing.allocation.disk.watermark.low.max_headroom": "200GB",
        "cluster.routing.allocation.disk.watermark.high": "90%",
        "cluster.routing.allocation.disk.watermark.flood_stage": "95%",
        "cluster.routing.allocation.disk.watermark.flood_stage.max_headroom": "100GB",
        "rest.action.multi.allow_explicit_index": "true",
    });
    let now = u64::try_from(NOW.as_millis()).expect("a time");
    let node = |name: &str, late: u64| {
        json!({
            "name": name, "timestamp": now + late, "roles": ["data", "ingest", "master"],
            "fs": { "total": { "total_in_bytes": 1_000_000, "available_in_bytes": 500_000 } },
        })
    };
    let index = |name: &str| {
        (name.to_owned(), json!({ "index.uuid": "u" }).as_object().cloned().unwrap_or_default())
    };
    Facts {
        settings: settings.as_object().cloned().unwrap_or_default(),
        health: json!({
            "active_shards": 40, "unassigned_shards": 0, "initializing_shards": 0,
            "number_of_data_nodes": 3,
            "indices": { "stock": { "status": "green" }, PARTITION: { "status": "yellow" } },
        }),
        nodes: json!({ "nodes": { "a": { "version": "8.19.1" }, "b": { "version": "8.19.1" } } }),
        stats: json!({ "nodes": { "a": node("one", 0), "b": node("two", 20), "c": node("three", 40) } }),
        asked: (NOW, NOW + Duration::from_millis(50)),
        indices: [index("stock"), index(PARTITION), index("txn-registry")].into(),
        privileges: json!({
            "username": "till", "has_all_requested": true, "cluster": { "monitor": true },
            "index": { "stock": { "read": true, "write": true } },
        }),
        ..Facts::default()
    }
}

/// The findings after a change of the sound answers.
fn after(plant: impl FnOnce(&mut Facts)) -> Vec<Message> {
    let mut facts = sound();
    plant(&mut facts);
    judge(&facts, &parts())
}

/// The only finding, with its code and severity.
#[track_caller]
fn only(found: &[Message], code: &str, severity: Severity) -> String {
    let [message] = found else { panic!("{code}: {found:?}") };
    assert_eq!((message.code, message.severity), (code, severity));
    message.line()
}

fn set(facts: &mut Facts, name: &str, value: &str) {
    facts.settings.insert(name.to_owned(), json!(value));
}

#[test]
fn sound_cluster_has_no_finding() {
    assert_eq!(after(|_| {}), []);
    assert_eq!(judge(&Facts::default(), &parts()), [], "servers that tell nothing");
}

#[test]
fn block_of_the_cluster_is_found() {
    let found = after(|facts| set(facts, "cluster.blocks.read_only", "true"));
    let line = only(&found, "cluster_blocked", Severity::Error);
    assert!(
        line.contains("PUT /_cluster/settings {\"persistent\":{\"cluster.blocks.read_only\":null}"),
        "{line}"
    );
}

#[test]
fn refusal_of_explicit_indices_is_found() {
    let found = after(|facts| set(facts, "rest.action.multi.allow_explicit_index", "false"));
    let line = only(&found, "explicit_index_refused", Severity::Error);
    assert!(line.contains("elasticsearch.yml"), "{line}");
}

#[test]
fn limit_of_shards_is_an_error_before_it_is_reached() {
    let used = |shards: u64| after(|facts| facts.health["active_shards"] = json!(shards));
    assert_eq!(used(3_000 - 2 * 14), []);
    only(&used(3_000 - 2 * 14 + 1), "shards_running_out", Severity::Note);
    let line = only(&used(3_000 - 3), "shard_limit", Severity::Error);
    assert!(
        line.contains("1 more fit") && line.contains("\"cluster.max_shards_per_node\":2000"),
        "{line}"
    );
    let unassigned = after(|facts| facts.health["unassigned_shards"] = json!(3_000));
    only(&unassigned, "shard_limit", Severity::Error);
}

#[test]
fn full_disk_is_found_by_the_watermarks() {
    let free = |node: &str, bytes: u64| {
        let node = node.to_owned();
        move |facts: &mut Facts| {
            facts.stats["nodes"][&node]["fs"]["total"]["available_in_bytes"] = json!(bytes);
        }
    };
    let line = only(&after(free("b", 40_000)), "disk_full", Severity::Error);
    assert!(line.contains("the node two is full (40000 of 1000000 bytes are free)"), "{line}");
    assert_eq!(after(free("b", 100_000)), [], "the other nodes take new shards");
    let all = |bytes: u64| {
        move |facts: &mut Facts| {
            ["a", "b", "c"].into_iter().for_each(|node| free(node, bytes)(facts));
        }
    };
    only(&after(all(100_000)), "disk_low", Severity::Note);
    only(&after(all(99_000)), "disk_high", Severity::Error);
    let single = |ignores: &'static str| {
        after(|facts| {
            let name = "cluster.routing.allocation.disk.watermark.enable_for_single_data_node";
            set(facts, name, ignores);
            facts.stats["nodes"] = json!({ "a": facts.stats["nodes"]["a"] });
            free("a", 99_000)(facts);
        })
    };
    only(&single("true"), "disk_high", Severity::Error);
    assert_eq!(single("false"), [], "the node takes shards in any case");
    let unchecked = after(|facts| {
        all(99_000)(facts);
        set(facts, "cluster.routing.allocation.disk.threshold_enabled", "false");
    });
    assert_eq!(unchecked, []);
    let master = after(|facts| {
        free("b", 1)(facts);
        facts.stats["nodes"]["b"]["roles"] = json!(["master"]);
    });
    assert_eq!(master, [], "a node without data");
}

#[test]
fn blocked_index_is_found_with_its_request() {
    let block = |index: &str, name: &str| {
        let (index, name) = (index.to_owned(), name.to_owned());
        after(move |facts| {
            let settings = facts.indices.get_mut(&index).expect("an index");
            settings.insert(name, json!("true"));
        })
    };
    let line = only(&block("stock", "index.blocks.write"), "index_blocked", Severity::Error);
    assert!(line.ends_with("PUT /stock/_settings {\"index.blocks.write\":null}"), "{line}");
    only(
        &block(PARTITION, "index.blocks.read_only_allow_delete"),
        "index_blocked",
        Severity::Error,
    );
    let mut parts = parts();
    parts.today = parts.today.plus(1);
    let mut facts = sound();
    let settings = facts.indices.get_mut(PARTITION).expect("an index");
    settings.insert("index.blocks.write".to_owned(), json!("true"));
    only(&judge(&facts, &parts), "index_blocked", Severity::Note);
    let closed = block("stock", "index.verified_before_close");
    assert!(only(&closed, "index_closed", Severity::Error).ends_with("POST /stock/_open"));
}

#[test]
fn unfit_settings_of_an_index_are_found() {
    for (name, value, code) in [
        ("index.final_pipeline", "p", "final_pipeline"),
        ("index.translog.durability", "ASYNC", "translog_async"),
    ] {
        let plant = |value: &'static str| {
            after(move |facts| {
                let settings = facts.indices.get_mut("stock").expect("an index");
                settings.insert(name.to_owned(), json!(value));
            })
        };
        only(&plant(value), code, Severity::Error);
        let fit = if name == "index.final_pipeline" { "_none" } else { "REQUEST" };
        assert_eq!(plant(fit), [], "{name}");
    }
}

#[test]
fn policy_of_an_index_is_found() {
    let lifecycle = |index: &'static str| {
        after(move |facts| {
            let settings = facts.indices.get_mut(index).expect("an index");
            settings.insert("index.lifecycle.name".to_owned(), json!("logs"));
        })
    };
    let line = only(&lifecycle(PARTITION), "index_managed", Severity::Error);
    assert!(line.ends_with(&format!("POST /{PARTITION}/_ilm/remove")), "{line}");
    only(&lifecycle("stock"), "index_managed", Severity::Note);
    let state = after(|facts| {
        facts.policies.insert("txn-registry".to_owned(), json!({ "policy_id": "logs" }));
        facts.policies.insert("stock".to_owned(), json!({ "policy_id": null }));
        facts.policies.insert("total_managed_indices".to_owned(), json!(1));
    });
    let line = only(&state, "index_managed", Severity::Error);
    assert!(line.ends_with("POST /_plugins/_ism/remove/txn-registry"), "{line}");
}

#[test]
fn red_index_is_found() {
    let found = after(|facts| facts.health["indices"]["stock"]["status"] = json!("red"));
    let line = only(&found, "index_red", Severity::Error);
    assert!(line.contains("GET /_cluster/allocation/explain"), "{line}");
}

#[test]
fn each_missing_privilege_is_named() {
    let found = after(|facts| {
        facts.privileges["cluster"]["monitor"] = json!(false);
        facts.privileges["index"]["stock"]["write"] = json!(false);
    });
    let lines: Vec<String> = found.iter().map(Message::line).collect();
    assert_eq!(found.len(), 2, "{lines:?}");
    assert!(lines[0].contains("till lacks monitor on the cluster"), "{lines:?}");
    assert!(lines[1].contains("till lacks write on stock"), "{lines:?}");
    assert!(lines[1].contains("PUT /_security/role/txn-shop-application {"), "{lines:?}");
}

#[test]
fn clock_of_a_node_is_told_from_the_local_clock() {
    let now = u64::try_from(NOW.as_millis()).expect("a time");
    let time = |node: &str, by: u64| json!({ "name": node, "timestamp": now + by });
    let node = after(|facts| facts.stats["nodes"]["b"] = time("two", 5_000));
    let line = only(&node, "node_clock_differs", Severity::Error);
    assert!(line.contains("the node two is 4960 ms ahead of"), "{line}");
    let ahead =
        after(|facts| facts.asked = (NOW + Duration::from_secs(9), NOW + Duration::from_secs(10)));
    let line = only(&ahead, "clock_differs", Severity::Error);
    assert!(line.contains("8980 ms ahead of"), "{line}");
    let behind = after(|facts| {
        let earlier = NOW - Duration::from_secs(7);
        facts.asked = (earlier, earlier);
    });
    let line = only(&behind, "clock_differs", Severity::Error);
    assert!(line.contains("behind"), "{line}");
    // A slow answer shows any moment between request and answer.
    let slow =
        after(|facts| facts.asked = (NOW - Duration::from_secs(20), NOW + Duration::from_secs(1)));
    assert_eq!(slow, []);
}

#[test]
fn different_versions_of_nodes_are_noted() {
    let found = after(|facts| facts.nodes["nodes"]["b"]["version"] = json!("9.0.0"));
    let line = only(&found, "versions_differ", Severity::Note);
    assert!(line.contains("8.19.1, 9.0.0"), "{line}");
}

#[test]
fn refused_question_is_noted() {
    let found = after(|facts| {
        facts.settings.clear();
        facts.unanswered.push("asking for /_cluster/settings: denied".to_owned());
    });
    only(&found, "not_checked", Severity::Note);
}

#[test]
fn errors_come_before_notes() {
    let found = after(|facts| {
        facts.nodes["nodes"]["b"]["version"] = json!("9.0.0");
        facts.health["indices"]["stock"]["status"] = Value::from("red");
    });
    let codes: Vec<&str> = found.iter().map(|message| message.code).collect();
    assert_eq!(codes, ["index_red", "versions_differ"]);
}
