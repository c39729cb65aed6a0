//! The verb that prints roles, as bodies of requests to the server.

use serde_json::{Value, json};
use txn_serve::operator::{Access, application_access, role_bodies};

use crate::answer::{Answer, Exit, Failure};
use crate::args::Global;
use crate::session;

pub(super) fn roles(global: &Global, collections: &[String]) -> Result<Answer, Failure> {
    let domain = session::name(global)?;
    let Access { cluster, names, privileges, .. } = application_access(domain, collections);
    let read: Vec<String> =
        collections.iter().flat_map(|name| [name.clone(), format!("{name}-txn-*")]).collect();
    let writer = (cluster, names.as_slice(), privileges);
    let reader = ([].as_slice(), read.as_slice(), ["read", "view_index_metadata"].as_slice());
    let roles = [("application", writer), ("janitor", writer), ("reader", reader)];
    let mut text = String::new();
    let mut all = Vec::new();
    for (role, (cluster, names, privileges)) in roles {
        let name = format!("txn-{domain}-{role}");
        let (elasticsearch, opensearch) = role_bodies(cluster, names, privileges);
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

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
