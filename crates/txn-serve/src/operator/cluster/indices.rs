//! Findings about the indices of a domain. Pure functions.

use serde_json::{Map, Value, json};

use super::super::message::Message;
use super::Parts;
use super::facts::Facts;

/// The blocks of an index and of a cluster.
const BLOCKS: [&str; 5] = ["write", "read", "metadata", "read_only", "read_only_allow_delete"];

/// The blocks of the whole cluster.
pub(super) fn blocks_of_cluster(facts: &Facts) -> Vec<Message> {
    let names = ["read_only", "read_only_allow_delete", "create_index"];
    let set = names.iter().map(|block| format!("cluster.blocks.{block}"));
    set.filter(|name| facts.setting(name) == Some("true"))
        .map(|name| {
            let body = json!({ "persistent": { &*name: null }, "transient": { &*name: null } });
            let text = format!("the cluster is blocked by {name}");
            Message::error("cluster_blocked", text, "find out who set it, then lift the block")
                .mended_by(format!("PUT /_cluster/settings {body}"))
        })
        .collect()
}

/// Findings about each index of the domain.
pub(super) fn indices(facts: &Facts, parts: &Parts) -> Vec<Message> {
    let mut found = Vec::new();
    for (name, settings) in &facts.indices {
        if is_true(settings, "index.verified_before_close") {
            let text = format!("the index {name} is closed");
            let message = Message::error("index_closed", text, "open the index");
            found.push(message.about(name).mended_by(format!("POST /{name}/_open")));
            continue;
        }
        found.extend(blocked(name, settings, parts));
        found.extend(unfit(name, settings));
        found.extend(managed(name, settings, facts, parts));
        if facts.health["indices"][name]["status"] == "red" {
            let text = format!("the index {name} is red: a primary shard is not assigned");
            let message = Message::error("index_red", text, "ask for the reason");
            let body = json!({ "index": name, "shard": 0, "primary": true });
            found.push(
                message.about(name).mended_by(format!("GET /_cluster/allocation/explain {body}")),
            );
        }
    }
    found
}

fn is_true(settings: &Map<String, Value>, name: &str) -> bool {
    settings.get(name).is_some_and(|value| *value == "true" || *value == true)
}

fn blocked(name: &str, settings: &Map<String, Value>, parts: &Parts) -> Option<Message> {
    let set = BLOCKS.iter().map(|block| format!("index.blocks.{block}"));
    let set: Vec<String> = set.filter(|block| is_true(settings, block)).collect();
    if set.is_empty() {
        return None;
    }
    let lifted: Map<String, Value> = set.iter().map(|block| (block.clone(), Value::Null)).collect();
    let request = format!("PUT /{name}/_settings {}", Value::Object(lifted));
    let text = format!("the index {name} is blocked by {}", set.join(", "));
    let day = parts.partitions.iter().find(|(_, partition)| partition == name).map(|(day, _)| *day);
    let message = match day {
        // A janitor blocks an old partition before it drops the partition.
        Some(day) if day < parts.today => {
            Message::note("index_blocked", text, "nothing, if a janitor drops this old day; else")
        }
        _ if set == ["index.blocks.read_only_allow_delete"] => Message::error(
            "index_blocked",
            text,
            "free disk space: the servers then lift the block by themselves; if no disk is full, \
             lift it",
        ),
        _ => Message::error(
            "index_blocked",
            text,
            "find out who set it, then lift the block; commits are then applied",
        ),
    };
    Some(message.about(name).mended_by(request))
}

/// Settings that an index must not have.
fn unfit(name: &str, settings: &Map<String, Value>) -> Vec<Message> {
    let text = |setting: &str| settings.get(setting).and_then(Value::as_str);
    let mut found = Vec::new();
    let pipeline = "index.final_pipeline";
    if let Some(value) = text(pipeline).filter(|value| *value != "_none") {
        let about =
            format!("the index {name} has the final pipeline {value}, which could change locks");
        let body = json!({ pipeline: "_none" });
        found.push(
            Message::error("final_pipeline", about, "take the pipeline off")
                .about(name)
                .mended_by(format!("PUT /{name}/_settings {body}")),
        );
    }
    let durability = "index.translog.durability";
    if let Some(value) = text(durability).filter(|value| !value.eq_ignore_ascii_case("request")) {
        let about =
            format!("the index {name} has {durability} {value}, and can lose acknowledged writes");
        let body = json!({ durability: "request" });
        found.push(
            Message::error("translog_async", about, "set it to request")
                .about(name)
                .mended_by(format!("PUT /{name}/_settings {body}")),
        );
    }
    found
}

/// A lifecycle policy, which may delete, shrink or roll over an index.
fn managed(
    name: &str,
    settings: &Map<String, Value>,
    facts: &Facts,
    parts: &Parts,
) -> Option<Message> {
    let lifecycle = settings.get("index.lifecycle.name").and_then(Value::as_str);
    let state = facts.policies.get(name).and_then(|about| about["policy_id"].as_str());
    let (policy, request) = match (lifecycle, state) {
        (Some(policy), _) => (policy, format!("POST /{name}/_ilm/remove")),
        (None, Some(policy)) => (policy, format!("POST /_plugins/_ism/remove/{name}")),
        (None, None) => return None,
    };
    let text =
        format!("the policy {policy} manages the index {name}, and may delete or roll it over");
    let message = match parts.is_of_the_library(name) {
        true => Message::error("index_managed", text, "remove the policy from the index"),
        false => Message::note(
            "index_managed",
            text,
            "if the policy deletes, shrinks or rolls over, remove it from the index",
        ),
    };
    Some(message.about(name).mended_by(request))
}
