//! The verb that prints roles, as bodies of requests to the server.

use serde_json::{Value, json};
use txn_serve::operator::{RoleBodies, application_role, reader_role};

use crate::answer::{Answer, Exit, Failure};
use crate::args::Global;
use crate::session;

pub(super) fn roles(global: &Global, collections: &[String]) -> Result<Answer, Failure> {
    let domain = session::name(global)?;
    let writer = application_role(domain, collections);
    let roles = [
        ("application", writer.clone()),
        ("janitor", writer),
        ("reader", reader_role(collections)),
    ];
    let mut text = String::new();
    let mut all = Vec::new();
    for (role, RoleBodies { elasticsearch, opensearch, .. }) in roles {
        let name = format!("txn-{domain}-{role}");
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
