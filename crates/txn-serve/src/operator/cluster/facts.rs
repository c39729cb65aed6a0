//! The answers of the servers to read-only requests.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use txn_es::{EsStore, Inspection, TemplateFault};

use super::Parts;

/// The number of indices in one request. The number bounds the length of the path.
const INDICES: usize = 20;

/// The answers of the servers. A missing answer is `Null`.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The settings of the cluster with defaults, by flat name.
    pub(super) settings: Map<String, Value>,
    /// Numbers of shards and nodes, and the status of each index.
    pub(super) health: Value,
    /// The versions of the nodes.
    pub(super) nodes: Value,
    /// Disks and clocks of the nodes.
    pub(super) stats: Value,
    /// The time of this machine before and after the request of `stats`.
    pub(super) asked: (Duration, Duration),
    /// The settings of the indices of the domain, by flat name.
    pub(super) indices: BTreeMap<String, Map<String, Value>>,
    /// The policies of OpenSearch for the indices.
    pub(super) policies: Map<String, Value>,
    /// The privileges of the account, if the servers of Elasticsearch have users.
    pub(super) privileges: Value,
    /// A template that spoils the partition of a later day.
    pub(super) template: Option<TemplateFault>,
    /// The requests that had no answer, with the reason.
    pub(super) unanswered: Vec<String>,
}

impl Facts {
    /// Returns a setting of the cluster as text.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).and_then(Value::as_str)
    }
}

pub(super) async fn ask(servers: &EsStore, parts: &Parts) -> Facts {
    let mut facts = Facts::default();
    let asking = Asking { servers };
    let settings = "/_cluster/settings?include_defaults=true&flat_settings=true";
    let settings = asking.get(settings, &mut facts.unanswered).await;
    // Transient settings have more weight than persistent ones, and these more than defaults.
    for level in ["defaults", "persistent", "transient"] {
        facts.settings.extend(settings[level].as_object().cloned().unwrap_or_default());
    }
    let health = "/_cluster/health?level=indices&filter_path=active_shards,unassigned_shards,\
                  initializing_shards,number_of_data_nodes,indices.*.status";
    facts.health = asking.get(health, &mut facts.unanswered).await;
    let nodes = "/_nodes?filter_path=nodes.*.name,nodes.*.version";
    facts.nodes = asking.get(nodes, &mut facts.unanswered).await;
    let stats = "/_nodes/stats/process,fs?filter_path=nodes.*.name,nodes.*.roles,\
                 nodes.*.timestamp,nodes.*.fs.total";
    let before = now();
    facts.stats = asking.get(stats, &mut facts.unanswered).await;
    facts.asked = (before, now());
    for some in parts.names().chunks(INDICES) {
        let path = "/{indices}/_settings?flat_settings=true&ignore_unavailable=true";
        let answer = asking.of(some, path, &mut facts.unanswered).await;
        for (name, about) in answer.as_object().into_iter().flatten() {
            let settings = about["settings"].as_object().cloned().unwrap_or_default();
            facts.indices.insert(name.clone(), settings);
        }
        if servers.server().distribution == "opensearch" {
            // Only distributions with the plugin know the request.
            let path = "/_plugins/_ism/explain/{indices}";
            let answer = asking.of(some, path, &mut Vec::new()).await;
            facts.policies.extend(answer.as_object().cloned().unwrap_or_default());
        }
    }
    if servers.server().distribution == "elasticsearch" {
        let access = parts.access();
        let body = json!({
            "cluster": access.cluster,
            "index": [{ "names": access.names, "privileges": access.privileges }],
        });
        let body = body.to_string();
        let path = "/_security/user/_has_privileges";
        let request = Inspection { path, indices: &[], body: Some(&body) };
        // Servers without users do not know the request.
        facts.privileges = match servers.inspect(&request).await {
            Ok(answer) => serde_json::from_str(&answer).unwrap_or_default(),
            Err(_) => Value::Null,
        };
    }
    facts.template = servers.template_fault(&parts.later_partition()).await.unwrap_or_default();
    facts
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

struct Asking<'a> {
    servers: &'a EsStore,
}

impl Asking<'_> {
    async fn get(&self, path: &str, unanswered: &mut Vec<String>) -> Value {
        self.of(&[], path, unanswered).await
    }

    /// Asks about indices, and notes a missing answer.
    async fn of(&self, indices: &[&str], path: &str, unanswered: &mut Vec<String>) -> Value {
        match self.servers.inspect(&Inspection { path, indices, body: None }).await {
            Ok(answer) => serde_json::from_str(&answer).unwrap_or_default(),
            Err(error) => {
                tracing::debug!(path, %error, "a check is left out");
                unanswered.push(error.message);
                Value::Null
            }
        }
    }
}
