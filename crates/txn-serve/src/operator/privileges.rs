//! The privileges of the accounts of a domain, as roles of the servers.

use serde_json::{Value, json};

/// The systems of a domain, which have a collection of their own.
const SYSTEMS: [&str; 6] =
    ["locks", "requests", "processors", "outbox", "http-results", "idempotency"];

/// The actions of OpenSearch that a reader needs on the cluster.
///
/// The plugin checks a request for several indices on the cluster, and then on each index.
const READS_ON_CLUSTER: [&str; 4] = [
    "cluster:monitor/main",
    "indices:data/read/mget",
    "indices:data/read/msearch",
    "indices:data/read/scroll*",
];

/// The actions that an application needs in addition.
///
/// The servers show their versions, clocks, disks, settings and index templates.
const CHANGES_ON_CLUSTER: [&str; 8] = [
    "cluster:monitor/health",
    "cluster:monitor/nodes/info",
    "cluster:monitor/nodes/stats",
    "cluster:monitor/state",
    "indices:admin/index_template/get",
    "indices:admin/index_template/simulate_index",
    "indices:admin/template/get",
    "indices:data/write/bulk",
];

/// The actions that read documents and definitions of an index.
const READS: [&str; 5] = [
    "read",
    "indices:admin/aliases/get",
    "indices:admin/get",
    "indices:admin/mappings/get",
    "indices:monitor/settings/get",
];

/// The actions that create an index, prepare it, and write its documents.
const CHANGES: [&str; 9] = [
    "indices:admin/aliases",
    "indices:admin/analyze",
    "indices:admin/create",
    "indices:admin/mapping/put",
    "indices:admin/refresh*",
    "indices:data/write/bulk*",
    "indices:data/write/delete",
    "indices:data/write/index",
    "indices:data/write/update",
];

/// The actions that end the partition of an old day: a write block, its lift, and the deletion.
const DROPS: [&str; 3] =
    ["indices:admin/block/add*", "indices:admin/delete", "indices:admin/settings/update"];

/// The privileges of an application on Elasticsearch.
#[derive(Clone, Debug)]
pub(super) struct Access {
    /// The privileges on the cluster.
    pub(super) cluster: &'static [&'static str],
    /// The names and patterns of the indices.
    pub(super) names: Vec<String>,
    /// The privileges on these indices.
    pub(super) privileges: &'static [&'static str],
}

/// The request bodies of one role.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RoleBodies {
    /// The body for Elasticsearch.
    pub elasticsearch: Value,
    /// The body for OpenSearch.
    pub opensearch: Value,
}

/// A domain's name, as in the names of its indices.
pub(super) fn own(domain: &str) -> String {
    domain.replace('-', ".")
}

/// The pattern of the partitions of a domain.
fn partitions(domain: &str) -> String {
    format!("txn-{}-*", own(domain))
}

/// The names of the other indices of an application, with their aliases.
fn others(domain: &str, collections: &[String]) -> Vec<String> {
    let own = own(domain);
    let mut names = vec!["txn-registry".to_owned(), "txn-registry-txn-*".to_owned()];
    let systems: Vec<String> = SYSTEMS.iter().map(|of| format!("{own}-{of}")).collect();
    for name in collections.iter().filter(|name| !systems.contains(name)) {
        names.extend([name.clone(), format!("{name}-txn-*"), format!("{name}-committed")]);
    }
    for name in systems {
        names.extend([format!("{name}-txn-*"), format!("{name}-committed"), name]);
    }
    names
}

/// The privileges of an application with these collections.
pub(super) fn application_access(domain: &str, collections: &[String]) -> Access {
    let mut names = others(domain, collections);
    names.push(partitions(domain));
    let privileges = &["read", "write", "view_index_metadata", "manage"];
    Access { cluster: &["monitor"], names, privileges }
}

/// Returns an application's role for Elasticsearch: name and request body.
pub(super) fn role(domain: &str, access: &Access) -> (String, Value) {
    let body = elasticsearch(access.cluster, &access.names, access.privileges);
    (format!("txn-{domain}-application"), body)
}

/// The role of an application with these collections, and of a janitor.
#[must_use]
pub fn application_role(domain: &str, collections: &[String]) -> RoleBodies {
    let access = application_access(domain, collections);
    let (_, elasticsearch) = role(domain, &access);
    let cluster = [READS_ON_CLUSTER.as_slice(), &CHANGES_ON_CLUSTER].concat();
    let changes = [READS.as_slice(), &CHANGES].concat();
    let drops = [changes.as_slice(), &DROPS].concat();
    let opensearch = opensearch(
        &cluster,
        &[(&others(domain, collections), &changes), (&[partitions(domain)], &drops)],
    );
    RoleBodies { elasticsearch, opensearch }
}

/// The role of an account that only reads these collections.
#[must_use]
pub fn reader_role(collections: &[String]) -> RoleBodies {
    let names = collections.iter().flat_map(|name| [name.clone(), format!("{name}-txn-*")]);
    let names: Vec<String> = names.collect();
    RoleBodies {
        elasticsearch: elasticsearch(&["monitor"], &names, &["read", "view_index_metadata"]),
        opensearch: opensearch(&READS_ON_CLUSTER, &[(&names, &READS)]),
    }
}

fn elasticsearch(cluster: &[&str], names: &[String], privileges: &[&str]) -> Value {
    json!({
        "cluster": cluster,
        "indices": [{ "names": names, "privileges": privileges }],
    })
}

fn opensearch(cluster: &[&str], indices: &[(&[String], &[&str])]) -> Value {
    let indices: Vec<Value> = indices
        .iter()
        .map(|(names, actions)| json!({ "index_patterns": names, "allowed_actions": actions }))
        .collect();
    json!({ "cluster_permissions": cluster, "index_permissions": indices })
}
