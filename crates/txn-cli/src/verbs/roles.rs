//! The verb that prints roles, as bodies of requests to the server.

use serde_json::{Value, json};

use crate::answer::{Answer, Exit, Failure};
use crate::args::Global;
use crate::session;

/// The systems of a domain, which have a collection of their own.
const SYSTEMS: [&str; 6] =
    ["locks", "requests", "processors", "outbox", "http-results", "idempotency"];

/// The privileges of a process of a domain.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) cluster: &'static [&'static str],
    pub(crate) names: Vec<String>,
    pub(crate) privileges: &'static [&'static str],
}

/// A domain's name, as in the names of its indices.
pub(crate) fn own(domain: &str) -> String {
    domain.replace('-', ".")
}

/// The privileges of an application with these collections.
pub(crate) fn application(domain: &str, collections: &[String]) -> Access {
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
pub(crate) fn role(domain: &str, access: &Access) -> (String, Value) {
    let (body, _) = bodies(access.cluster, &access.names, access.privileges);
    (format!("txn-{domain}-application"), body)
}

pub(super) fn roles(global: &Global, collections: &[String]) -> Result<Answer, Failure> {
    let domain = session::name(global)?;
    let Access { cluster, names, privileges } = application(domain, collections);
    let read: Vec<String> =
        collections.iter().flat_map(|name| [name.clone(), format!("{name}-txn-*")]).collect();
    let writer = (cluster, names.as_slice(), privileges);
    let reader = ([].as_slice(), read.as_slice(), ["read", "view_index_metadata"].as_slice());
    let roles = [("application", writer), ("janitor", writer), ("reader", reader)];
    let mut text = String::new();
    let mut all = Vec::new();
    for (role, (cluster, names, privileges)) in roles {
        let name = format!("txn-{domain}-{role}");
        let (elasticsearch, opensearch) = bodies(cluster, names, privileges);
        text += &format!(
            "# {role}: Elasticsearch\nPUT /_security/role/{name}\n{}\n# {role}: OpenSearch\n\
             PUT /_plugins/_security/api/roles/{name}\n{}\n",
            pretty(&elasticsearch),
            pretty(&opensearch)
        );
        all.push(json!({
            "role": role, "name": name, "elasticsearch": elasticsearch, "opensearch": opensearch,
        }));
    }
    text += "Next: send the requests of your server as an administrator, and give each account its role.\n\
             Application and janitor need the same privileges: any process of the domain recovers the others.";
    Ok(Answer::new(Exit::Well, text, json!({ "domain": domain, "roles": all })))
}

/// The body for Elasticsearch, and the body for OpenSearch.
fn bodies(cluster: &[&str], names: &[String], privileges: &[&str]) -> (Value, Value) {
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

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
