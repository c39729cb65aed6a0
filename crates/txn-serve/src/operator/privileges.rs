//! The privileges of the processes of a domain.

use serde_json::{Value, json};

/// The systems of a domain, which have a collection of their own.
const SYSTEMS: [&str; 6] =
    ["locks", "requests", "processors", "outbox", "http-results", "idempotency"];

/// The privileges of a process of a domain.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Access {
    /// The privileges on the cluster.
    pub cluster: &'static [&'static str],
    /// The names and patterns of the indices.
    pub names: Vec<String>,
    /// The privileges on these indices.
    pub privileges: &'static [&'static str],
}

/// A domain's name, as in the names of its indices.
pub(super) fn own(domain: &str) -> String {
    domain.replace('-', ".")
}

/// The privileges of an application with these collections.
#[must_use]
pub fn application_access(domain: &str, collections: &[String]) -> Access {
    let own = own(domain);
    let mut names = vec!["txn-registry".to_owned(), "txn-registry-txn-*".to_owned()];
    names.push(format!("txn-{own}-*"));
    let systems: Vec<String> = SYSTEMS.iter().map(|of| format!("{own}-{of}")).collect();
    for name in collections.iter().filter(|name| !systems.contains(name)) {
        names.extend([name.clone(), format!("{name}-txn-*"), format!("{name}-committed")]);
    }
    for name in systems {
        names.extend([format!("{name}-txn-*"), name]);
    }
    let privileges = &["read", "write", "view_index_metadata", "manage"];
    Access { cluster: &["monitor"], names, privileges }
}

/// Returns an application's role for Elasticsearch: name and request body.
pub(super) fn role(domain: &str, access: &Access) -> (String, Value) {
    let (body, _) = role_bodies(access.cluster, &access.names, access.privileges);
    (format!("txn-{domain}-application"), body)
}

/// The body for Elasticsearch, and the body for OpenSearch.
#[must_use]
pub fn role_bodies(cluster: &[&str], names: &[String], privileges: &[&str]) -> (Value, Value) {
    let elasticsearch = json!({
        "cluster": cluster,
        "indices": [{ "names": names, "privileges": privileges }],
    });
    let cluster: &[&str] = match cluster.is_empty() {
        true => &["cluster_composite_ops_ro"],
        false => &["cluster_monitor", "cluster_composite_ops"],
    };
    let actions: &[&str] = match privileges.contains(&"manage") {
        true => &["indices_all"],
        false => &[
            "read",
            "indices:admin/get",
            "indices:admin/mappings/get",
            "indices:admin/aliases/get",
            "indices:monitor/settings/get",
        ],
    };
    let opensearch = json!({
        "cluster_permissions": cluster,
        "index_permissions": [{ "index_patterns": names, "allowed_actions": actions }],
    });
    (elasticsearch, opensearch)
}
