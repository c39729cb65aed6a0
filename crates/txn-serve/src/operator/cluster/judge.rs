//! The findings of the answers of the servers. Pure functions.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::message::{Message, Severity};
use super::super::privileges;
use super::facts::Facts;
use super::{Parts, disks, indices};

/// The difference of two clocks that is worth a message.
const CLOCKS: Duration = Duration::from_secs(1);

/// Fewer days of free shards are an error.
const DAYS: u64 = 2;

/// Fewer days of free shards are worth a note.
const DAYS_AHEAD: u64 = 14;

/// Returns all findings, errors before notes.
pub(super) fn judge(facts: &Facts, parts: &Parts) -> Vec<Message> {
    let mut found = Vec::new();
    found.extend(indices::blocks_of_cluster(facts));
    found.extend(explicit_index(facts));
    found.extend(disks::disks(facts));
    found.extend(indices::indices(facts, parts));
    found.extend(template(facts, parts));
    found.extend(shards(facts));
    found.extend(privileges(facts, parts));
    found.extend(clocks(facts));
    found.extend(versions(facts));
    let unanswered = facts.unanswered.iter();
    found.extend(unanswered.map(|why| {
        let remedy = "grant the account the privilege monitor (`txn roles COLLECTION…`), or repeat";
        Message::note("not_checked", why.clone(), remedy)
    }));
    found.sort_by_key(|message| message.severity != Severity::Error);
    found
}

fn explicit_index(facts: &Facts) -> Option<Message> {
    let name = "rest.action.multi.allow_explicit_index";
    facts.setting(name).filter(|value| *value == "false").map(|_| {
        Message::error(
            "explicit_index_refused",
            format!("{name} is false: the nodes refuse requests that name an index for each document"),
            format!("set `{name}: true` in elasticsearch.yml or opensearch.yml of every node, and restart it"),
        )
    })
}

fn template(facts: &Facts, parts: &Parts) -> Option<Message> {
    let found = facts.template.as_ref()?;
    let prefix = parts.prefix();
    let body = json!({
        "index_patterns": [format!("{prefix}*")],
        "priority": found.priority.saturating_add(1).max(1),
        "template": {},
    });
    let text = format!(
        "the index template {:?} applies to the partitions of coming days, which cannot be made: {}",
        found.template, found.fault
    );
    let name = format!("{prefix}partitions");
    let message = Message::error(
        "template_spoils_partition",
        text,
        "take the names out of its index_patterns, or send",
    );
    Some(message.about(&found.template).mended_by(format!("PUT /_index_template/{name} {body}")))
}

fn shards(facts: &Facts) -> Option<Message> {
    let per_node: u64 = facts.setting("cluster.max_shards_per_node")?.parse().ok()?;
    let count = |name: &str| facts.health[name].as_u64();
    let nodes = count("number_of_data_nodes")?;
    let used = count("active_shards")?
        + count("unassigned_shards").unwrap_or(0)
        + count("initializing_shards").unwrap_or(0);
    let most = per_node.saturating_mul(nodes);
    // A partition has a copy from the second node on.
    let days = most.saturating_sub(used) / if nodes > 1 { 2 } else { 1 };
    let text = format!(
        "{used} of {most} shards are in use: a domain needs one partition a day, and {days} more fit"
    );
    let request = json!({ "persistent": { "cluster.max_shards_per_node": per_node + 1_000 } });
    let request = format!("PUT /_cluster/settings {request}");
    let remedy = "delete unused indices, or raise the limit";
    match days {
        0..DAYS => Some(Message::error("shard_limit", text, remedy).mended_by(request)),
        DAYS..DAYS_AHEAD => {
            Some(Message::note("shards_running_out", text, remedy).mended_by(request))
        }
        _ => None,
    }
}

fn privileges(facts: &Facts, parts: &Parts) -> Vec<Message> {
    let user = facts.privileges["username"].as_str().unwrap_or("the account");
    let lacking = |granted: &Value| -> Vec<String> {
        let granted = granted.as_object().into_iter().flatten();
        granted.filter(|(_, has)| **has == false).map(|(name, _)| name.clone()).collect()
    };
    let mut missing: Vec<(String, Vec<String>)> =
        vec![("the cluster".to_owned(), lacking(&facts.privileges["cluster"]))];
    let indices = facts.privileges["index"].as_object().into_iter().flatten();
    missing.extend(indices.map(|(index, granted)| (index.clone(), lacking(granted))));
    missing.retain(|(_, lacks)| !lacks.is_empty());
    let message = |(at, lacks): (String, Vec<String>)| {
        let text = format!("{user} lacks {} on {at}", lacks.join(", "));
        let remedy = "give the account a role with these privileges";
        let (name, body) = privileges::role(&parts.domain, &parts.access());
        Message::error("privilege_missing", text, remedy)
            .about(at)
            .mended_by(format!("PUT /_security/role/{name} {body}"))
    };
    missing.into_iter().map(message).collect()
}

/// The clocks of the nodes, and the clock of this machine.
fn clocks(facts: &Facts) -> Vec<Message> {
    let nodes = facts.stats["nodes"].as_object().into_iter().flatten();
    let mut times: Vec<(u64, &str)> = nodes
        .filter_map(|(id, node)| {
            Some((node["timestamp"].as_u64()?, node["name"].as_str().unwrap_or(id)))
        })
        .collect();
    times.sort_unstable();
    let Some((median, _)) = times.get(times.len() / 2).copied() else { return Vec::new() };
    let (before, after) = facts.asked;
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    // Nodes answer at different moments of one request.
    let most = millis(CLOCKS).saturating_add(millis(after.saturating_sub(before)));
    let mut found = Vec::new();
    for (time, node) in &times {
        if time.abs_diff(median) > most {
            let side = if *time > median { "ahead of" } else { "behind" };
            let text = format!(
                "the clock of the node {node} is {} ms {side} those of other nodes",
                time.abs_diff(median)
            );
            let remedy = "set the clock of that node by NTP";
            found.push(Message::error("node_clock_differs", text, remedy).about(*node));
        }
    }
    // The answer shows a moment between request and answer.
    let (before, after) = (millis(before), millis(after));
    let (by, side) = match median {
        median if median > after => (median - after, "behind"),
        median => (before.saturating_sub(median), "ahead of"),
    };
    if by > millis(CLOCKS) {
        found.push(clock_differs(by, side));
    }
    found
}

/// The remedy for clocks that differ.
pub(in crate::operator) fn clock_remedy(clocks: &str) -> String {
    format!("set the {clocks} by NTP; beyond `max_drift` (60 s unless set) its transactions fail")
}

/// The message about the clock of this machine.
pub(in crate::operator) fn clock_differs(by_ms: u64, side: &str) -> Message {
    Message::error(
        "clock_differs",
        format!("the clock of this machine is {by_ms} ms {side} the clock of the server"),
        clock_remedy("clocks of this machine and of the servers"),
    )
}

fn versions(facts: &Facts) -> Option<Message> {
    let nodes = facts.nodes["nodes"].as_object().into_iter().flatten();
    let versions: BTreeSet<&str> = nodes.filter_map(|(_, node)| node["version"].as_str()).collect();
    let listed = versions.iter().copied().collect::<Vec<_>>().join(", ");
    (versions.len() > 1).then(|| {
        let text = format!("the nodes have different versions: {listed}");
        Message::note("versions_differ", text, "finish the upgrade of the nodes")
    })
}
