//! The command on a server with users: faults of privileges and of lifecycle policies.

#[path = "../ran.rs"]
#[expect(dead_code, reason = "other programs use the rest")]
mod ran;

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use txn_core::Domain;
use txn_es::{EsConfig, EsStore};
use txn_fixtures::plain_client::PlainClient;
use txn_testkit::env::{self, Secured};

use ran::{CANARY, Ran, codes, command};

/// A domain on the server with users. Dropped with its user and its roles.
struct SecuredDesk {
    secured: Secured,
    domain: String,
    stock: String,
    plain: PlainClient,
    runtime: Runtime,
    home: TempDir,
}

impl SecuredDesk {
    fn new() -> Self {
        let secured = env::secured();
        let authority = std::fs::read(&secured.ca_certificate).expect("the authority's file");
        let authority = reqwest::Certificate::from_pem(&authority).expect("PEM");
        let http = reqwest::Client::builder().no_proxy().add_root_certificate(authority).build();
        let login = (secured.username.clone(), secured.password.expose().to_owned());
        let plain = PlainClient::with(http.expect("a client"), &secured.url, Some(login));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_micros();
        let domain = format!("cli-{now:x}");
        Self {
            stock: format!("{domain}-stock"),
            secured,
            domain,
            plain,
            runtime: Runtime::new().expect("starts"),
            home: tempfile::tempdir().expect("a directory"),
        }
    }

    /// Runs the command as a user.
    fn run_as(&self, user: &str, words: &str) -> Ran {
        let login = format!("{user}:{}", self.secured.password.expose());
        let mut command = command(self.home.path());
        command
            .env("TXN_STORE", &self.secured.url)
            .env("TXN_DOMAIN", &self.domain)
            .env("TXN_HEADERS", format!("Authorization: Basic {}", BASE64_STANDARD.encode(login)))
            .arg("--ca-cert")
            .arg(&self.secured.ca_certificate);
        Ran::of(command, words)
    }

    /// Runs the command as the superuser.
    fn run(&self, words: &str) -> Ran {
        self.run_as(&self.secured.username, words)
    }

    /// Sends a request as the superuser.
    fn ask(&self, method: &str, path: &str, body: Value) -> Value {
        let body = (!body.is_null()).then(|| body.to_string());
        self.runtime.block_on(self.plain.ok(method, path, body))
    }

    /// Sends the request of the only message with this code, which mends its fault.
    #[track_caller]
    fn mend(&self, doctor: &Value, code: &str) {
        let messages = doctor["messages"].as_array().expect("a list");
        let found = messages.iter().find(|message| message["code"] == code);
        let request = found.and_then(|message| message["request"].as_str());
        let request = request.unwrap_or_else(|| panic!("no request for {code}: {doctor}"));
        let mut parts = request.splitn(3, ' ');
        let (method, path) = (parts.next().expect("a method"), parts.next().expect("a path"));
        let body = parts.next().map_or(Value::Null, |body| body.parse().expect("JSON"));
        self.ask(method, path, body);
    }

    /// Gives the user of this domain one role.
    fn give_role(&self, role: &str) {
        let body = json!({ "password": self.secured.password.expose(), "roles": [role] });
        self.ask("PUT", &format!("/_security/user/{}", self.domain), body);
    }

    async fn remove(&self) {
        let authority = std::fs::read(&self.secured.ca_certificate).expect("the authority's file");
        let config = EsConfig::from_url(&self.secured.url)
            .expect("an address")
            .with_certificate_authority(authority)
            .with_basic_auth(&self.secured.username, self.secured.password.expose());
        let store = std::sync::Arc::new(EsStore::connect(config).await.expect("connects"));
        let domain = Domain::open(store, &self.domain, txn_core::Config::default()).await;
        domain.expect("opens").admin().remove().await.expect("removes");
        for path in [
            format!("/{}", self.stock),
            format!("/_security/user/{}", self.domain),
            format!("/_security/role/{}", weak(&self.domain)),
            format!("/_security/role/txn-{}-application", self.domain),
            format!("/_ilm/policy/{}", self.domain),
        ] {
            // A test that failed may not have made all of them.
            self.plain.text("DELETE", &path, None).await;
        }
    }
}

impl Drop for SecuredDesk {
    fn drop(&mut self) {
        self.runtime.block_on(self.remove());
    }
}

/// The name of a role with too few privileges.
fn weak(domain: &str) -> String {
    format!("{domain}-weak")
}

#[test]
fn printed_role_gives_the_missing_privileges() {
    let desk = SecuredDesk::new();
    let (domain, stock) = (&desk.domain, &desk.stock);
    desk.run(&format!("init {stock}")).says(0, &["is ready"]);
    desk.run("doctor").says(0, &["ok  privileges"]);
    let names = ["txn-*", &format!("{domain}*")];
    let indices = json!([{ "names": names, "privileges": ["read", "view_index_metadata"] }]);
    let body = json!({ "cluster": ["monitor"], "indices": indices });
    desk.ask("PUT", &format!("/_security/role/{}", weak(domain)), body);
    desk.give_role(&weak(domain));
    let text = format!("{domain} lacks manage, write on {stock}");
    desk.run_as(domain, "doctor").says(1, &["[privilege_missing]", &text]);
    let put = json!({ "put": {
        "target": { "collection": stock, "id": "a" }, "document": { "text": CANARY },
    } });
    let file = desk.home.path().join("request.json");
    std::fs::write(file, json!({ "operations": [put] }).to_string()).expect("writes");
    let run = desk.run_as(domain, "run request.json --id one --execute");
    assert_ne!(run.code, 0, "{run:?}");

    let doctor = desk.run_as(domain, "--json doctor").json(1);
    desk.mend(&doctor, "privilege_missing");
    desk.give_role(&format!("txn-{domain}-application"));
    desk.run_as(domain, "doctor").says(0, &["ok  privileges"]);
    desk.run_as(domain, "run request.json --id one --execute").says(0, &["one: finished"]);
    desk.run_as(domain, "recover").says(0, &["Left: 0 locked documents"]);
}

#[test]
fn lifecycle_policy_is_found_and_removed() {
    let desk = SecuredDesk::new();
    desk.run(&format!("init {}", desk.stock)).says(0, &["is ready"]);
    let policy = &desk.domain;
    let body = json!({ "policy": { "phases": { "hot": { "actions": {} } } } });
    desk.ask("PUT", &format!("/_ilm/policy/{policy}"), body);
    let status = desk.run("--json status").json(0);
    let partition = status["partitions"][0]["name"].as_str().expect("a name");
    for (index, code, line) in [
        (partition, 1, "NOT WELL [index_managed]"),
        // The policy of an application may be intended.
        (&*desk.stock, 0, "note [index_managed]"),
    ] {
        let path = format!("/{index}/_settings");
        desk.ask("PUT", &path, json!({ "index.lifecycle.name": policy }));
        let text = format!("{line}: the policy {policy} manages the index {index}");
        desk.run("doctor").says(code, &[&text]);
        let doctor = desk.run("--json doctor").json(code);
        desk.mend(&doctor, "index_managed");
        let doctor = desk.run("--json doctor").json(0);
        assert!(!codes(&doctor).contains(&"index_managed"), "{doctor}");
    }
}
