//! The printed roles on OpenSearch with its security plugin.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use txn_core::store::{Key, Read, Store};
use txn_core::{Domain, Options};
use txn_es::EsStore;
use txn_fixtures::bank;
use txn_fixtures::fixture::{Fixture, PATIENCE};
use txn_fixtures::secured;
use txn_testkit::env::{self, Secured};

use super::SecuredDesk;
use super::ran::codes;

/// The plugin refuses concurrent changes of its users.
static USERS: Mutex<()> = Mutex::new(());

/// A desk with one account for each printed role.
struct RolesDesk {
    desk: SecuredDesk,
    application: String,
    janitor: String,
    reader: String,
}

impl RolesDesk {
    /// Sends the printed requests, and gives each role to a new account.
    ///
    /// The janitor removes the domain at the end.
    fn new() -> Self {
        let mut desk = SecuredDesk::on(env::secured_opensearch());
        let roles = desk.run(&format!("--json roles {}", desk.stock)).json(0);
        let roles = roles["roles"].as_array().expect("a list");
        let accounts: Vec<String> = roles.iter().map(|role| grant(&desk, role)).collect();
        let [application, janitor, reader] = accounts.try_into().expect("three roles");
        desk.remover.clone_from(&janitor);
        Self { desk, application, janitor, reader }
    }

    fn access_of(&self, account: &str) -> Secured {
        self.desk.secured.as_user(account)
    }

    /// Sends a plain request as an account, and returns the status.
    ///
    /// A bulk request has the status of its only item.
    fn status_of(&self, account: &str, (method, path, body): &Sent) -> (u16, String) {
        let client = secured::plain(&self.access_of(account));
        let sent = client.text(method, path, body.clone());
        let (status, text) = self.desk.runtime.block_on(sent);
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        let item = answer["items"][0].as_object().and_then(|item| item.values().next());
        let of_item = item.and_then(|item| item["status"].as_u64()?.try_into().ok());
        (of_item.unwrap_or(status), text)
    }

    #[track_caller]
    fn answers(&self, account: &str, expected: u16, requests: &[Sent]) {
        for request in requests {
            let (status, text) = self.status_of(account, request);
            assert_eq!(status, expected, "{account} {} {}: {text}", request.0, request.1);
        }
    }
}

/// A request: method, path and body.
type Sent = (&'static str, String, Option<String>);

/// Creates a role from its printed request, and an account with this role.
fn grant(desk: &SecuredDesk, role: &Value) -> String {
    let text = |field: &str| role[field].as_str().expect("a text").to_owned();
    let (name, account) = (text("name"), format!("{}-{}", desk.domain, text("role")));
    let user = json!({ "password": desk.secured.password.expose() });
    let _users = USERS.lock().expect("no panic");
    for (kind, name, body) in [
        ("roles", &name, &role["opensearch"]),
        ("internalusers", &account, &user),
        ("rolesmapping", &name, &json!({ "users": [account] })),
    ] {
        let path = format!("/_plugins/_security/api/{kind}/{name}");
        desk.runtime.block_on(desk.plain.ok("PUT", &path, Some(body.to_string())));
    }
    account
}

fn sent(method: &'static str, path: String, body: &Value) -> Sent {
    (method, path, (!body.is_null()).then(|| body.to_string()))
}

fn bulk(action: &Value, document: &str) -> Sent {
    ("POST", "/_bulk".to_owned(), Some(format!("{action}\n{document}\n")))
}

/// Runs transactions, and a janitor pass.
async fn load(access: Secured, domain: String, stock: String) {
    let store = Arc::new(EsStore::connect(secured::config(&access)).await.expect("connects"));
    let domain = Domain::open(store, &domain, Fixture::config()).await.expect("opens");
    let accounts = bank::open(&domain, &stock).await;
    let names = bank::names(4);
    bank::fund(&domain, &accounts, &names, 100).await;
    for _ in 0..10 {
        bank::spread(&domain, &accounts, &names, &Options::default()).await.expect("moves");
    }
    assert_eq!(bank::sum(&domain, &accounts, &names).await, 400);
    let report = domain.admin().janitor_pass().await.expect("the janitor may do its work");
    assert!(report.is_clean(), "{report:?}");
    assert!(domain.shutdown(PATIENCE).await);
}

#[test]
#[ignore = "needs the server `secured-opensearch`; run each night"]
fn printed_roles_suffice_on_opensearch() {
    let roles = RolesDesk::new();
    let RolesDesk { desk, application, janitor, reader } = &roles;
    let stock = &desk.stock;
    desk.run_as(application, &format!("init {stock}")).says(0, &["is ready"]);
    let work = load(roles.access_of(application), desk.domain.clone(), stock.clone());
    desk.runtime.block_on(work);
    for account in [application, janitor] {
        for verb in ["status", "verify", "recover", "locks", "processes", "hot", "rebuild"] {
            desk.run_as(account, verb).says(0, &[]);
        }
        let doctor = desk.run_as(account, "--json doctor").json(0);
        assert_eq!(codes(&doctor), [] as [&str; 0], "{doctor}");
    }
    // A reader opens no domain, and reads documents.
    desk.run_as(reader, "status").fails(2, "no permissions");
    let found = json!({ "docs": [{ "_index": stock, "_id": "a0" }] });
    roles.answers(
        reader,
        200,
        &[
            sent("GET", format!("/{stock}/_doc/a0"), &Value::Null),
            sent("GET", format!("/{stock}/_search"), &Value::Null),
            sent("GET", format!("/{stock}/_mapping"), &Value::Null),
            sent("POST", "/_mget".to_owned(), &found),
        ],
    );
    let read = desk.runtime.block_on(async {
        let store = EsStore::connect(secured::config(&roles.access_of(reader))).await;
        store.expect("connects").get_many(&[Key::new(stock.as_str(), "a0")]).await.remove(0)
    });
    assert!(matches!(read, Read::Found { .. }), "{read:?}");
}

/// Requests about another index, which no role covers.
fn about_another(stock: &str, other: &str) -> Vec<Sent> {
    let index = json!({ "index": { "_index": other, "_id": "1" } });
    let alias =
        json!({ "actions": [{ "add": { "index": other, "alias": format!("{stock}-txn-a") } }] });
    vec![
        sent("GET", format!("/{other}/_search"), &Value::Null),
        sent("GET", format!("/{other}/_doc/1"), &Value::Null),
        sent("GET", format!("/{other}/_mapping"), &Value::Null),
        sent("GET", "/_all/_search".to_owned(), &Value::Null),
        sent("PUT", format!("/{other}-new"), &Value::Null),
        sent("POST", "/_aliases".to_owned(), &alias),
        bulk(&index, "{}"),
    ]
}

/// Requests that change or remove an index.
fn about_the_index(stock: &str) -> Vec<Sent> {
    let block = json!({ "index.blocks.write": true });
    let setting = json!({ "transient": { "cluster.max_shards_per_node": null } });
    let remove = json!({ "actions": [{ "remove_index": { "index": stock } }] });
    vec![
        sent("DELETE", format!("/{stock}"), &Value::Null),
        sent("POST", "/_aliases".to_owned(), &remove),
        sent("PUT", format!("/{stock}/_settings"), &block),
        sent("PUT", format!("/{stock}/_block/write"), &Value::Null),
        sent("POST", format!("/{stock}/_close"), &Value::Null),
        sent("PUT", "/_cluster/settings".to_owned(), &setting),
        sent("PUT", format!("/_index_template/{stock}"), &json!({ "index_patterns": [stock] })),
        sent("GET", "/_plugins/_security/api/roles".to_owned(), &Value::Null),
    ]
}

#[test]
#[ignore = "needs the server `secured-opensearch`; run each night"]
fn printed_roles_forbid_the_rest_on_opensearch() {
    let roles = RolesDesk::new();
    let RolesDesk { desk, application, janitor, reader } = &roles;
    let (stock, other) = (&desk.stock, format!("other-{}", desk.domain));
    desk.run_as(application, &format!("init {stock}")).says(0, &["is ready"]);
    desk.runtime.block_on(async {
        desk.plain.put(stock, "1", "{}").await;
        desk.plain.put(&other, "1", "{}").await;
    });
    for account in [application, janitor, reader] {
        roles.answers(account, 403, &about_another(stock, &other));
        roles.answers(account, 403, &about_the_index(stock));
    }
    let update = json!({ "update": { "_index": stock, "_id": "1" } });
    roles.answers(
        reader,
        403,
        &[
            bulk(&update, "{\"doc\":{\"a\":1}}"),
            sent("PUT", format!("/{stock}/_doc/1"), &json!({})),
            sent("DELETE", format!("/{stock}/_doc/1"), &Value::Null),
            sent("PUT", format!("/{stock}/_mapping"), &json!({ "properties": {} })),
            sent("GET", "/txn-registry/_search".to_owned(), &Value::Null),
            sent("GET", format!("/txn-{}-*/_search", desk.domain.replace('-', ".")), &Value::Null),
        ],
    );
    desk.runtime.block_on(desk.plain.ok("DELETE", &format!("/{other}"), None));
}
