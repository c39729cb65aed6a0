//! The command on servers with users: missing privileges, and the printed roles.

mod opensearch;
#[path = "../ran.rs"]
#[expect(dead_code, reason = "other programs use the rest")]
mod ran;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use txn_core::Domain;
use txn_es::EsStore;
use txn_fixtures::plain_client::PlainClient;
use txn_fixtures::secured;
use txn_testkit::env::{self, Secured};

use ran::{Ran, codes, command};

/// A domain on the server with users. Dropped with its collection.
struct SecuredDesk {
    secured: Secured,
    /// The user who removes the domain.
    remover: String,
    domain: String,
    stock: String,
    plain: PlainClient,
    runtime: Runtime,
    home: TempDir,
}

impl SecuredDesk {
    fn on(secured: Secured) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_micros();
        let domain = format!("cli-{now:x}");
        Self {
            stock: format!("{domain}-stock"),
            plain: secured::plain(&secured),
            remover: secured.username.clone(),
            secured,
            domain,
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

    async fn remove(&self) {
        let config = secured::config(&self.secured.as_user(&self.remover));
        let store = EsStore::connect(config).await.expect("connects");
        let store = Arc::new(store);
        let domain = Domain::open(store, &self.domain, txn_core::Config::default()).await;
        domain.expect("opens").admin().remove().await.expect("removes");
        self.plain.ok("DELETE", &format!("/{}", self.stock), None).await;
    }
}

impl Drop for SecuredDesk {
    fn drop(&mut self) {
        self.runtime.block_on(self.remove());
    }
}

/// The user `tables` may use the tables of each domain, and no collection.
#[test]
fn missing_privileges_are_found_with_their_role() {
    let desk = SecuredDesk::on(env::secured());
    let (domain, stock) = (&desk.domain, &desk.stock);
    desk.run(&format!("init {stock}")).says(0, &["is ready"]);
    let doctor = desk.run("--json doctor").json(0);
    assert!(!codes(&doctor).contains(&"privilege_missing"), "{doctor}");

    let text = format!("tables lacks manage, read, view_index_metadata, write on {stock}");
    desk.run_as("tables", "doctor").says(1, &["[privilege_missing]", &text]);
    let doctor = desk.run_as("tables", "--json doctor").json(1);
    let messages = doctor["messages"].as_array().expect("a list");
    let missing = messages.iter().find(|message| message["subject"] == **stock);
    let request = missing.and_then(|message| message["request"].as_str()).expect("a request");
    let path = format!("PUT /_security/role/txn-{domain}-application ");
    let role: Value = request.strip_prefix(&path).expect("the path").parse().expect("JSON");
    let (cluster, index) = (&role["cluster"], &role["indices"][0]);
    assert_eq!(*cluster, json!(["monitor"]), "{role}");
    assert_eq!(index["privileges"], json!(["read", "write", "view_index_metadata", "manage"]));
    let names = index["names"].as_array().expect("a list");
    for name in [stock.clone(), format!("{stock}-txn-*"), format!("{stock}-committed")] {
        assert!(names.contains(&json!(name)), "{name}: {role}");
    }
}
