//! Access to the servers that the environment names.
#![allow(dead_code, reason = "each suite uses a part of it")]

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use txn_es::{EsConfig, EsStore};

pub(crate) const ELASTICSEARCH: &str = "TXN_ELASTICSEARCH_URL";
pub(crate) const ELASTICSEARCH7: &str = "TXN_ELASTICSEARCH7_URL";
pub(crate) const ELASTICSEARCH9: &str = "TXN_ELASTICSEARCH9_URL";
pub(crate) const OPENSEARCH: &str = "TXN_OPENSEARCH_URL";
pub(crate) const OPENSEARCH2: &str = "TXN_OPENSEARCH2_URL";
pub(crate) const ALL: [&str; 5] =
    [ELASTICSEARCH, ELASTICSEARCH7, ELASTICSEARCH9, OPENSEARCH, OPENSEARCH2];

/// Returns the address in a variable, and panics without one.
///
/// A skipped suite proves nothing.
pub(crate) fn url(variable: &str) -> String {
    let url = std::env::var(variable).ok().filter(|url| !url.is_empty());
    url.unwrap_or_else(|| panic!("{variable} is not set: run `cargo xtask test`, or start servers with `cargo xtask servers up` and export what it prints"))
}

/// Returns a store on the server that a variable names.
pub(crate) async fn store(variable: &str) -> EsStore {
    let config = EsConfig::from_url(&url(variable)).expect("an address");
    EsStore::connect(config).await.expect("a server that answers")
}

/// Returns a name that no other run uses.
pub(crate) fn unique(what: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_micros();
    format!("txn-es-{what}-{now}")
}

/// A plain client, without the store.
pub(crate) struct Plain {
    http: reqwest::Client,
    url: String,
}

impl Plain {
    pub(crate) fn new(variable: &str) -> Self {
        let http = reqwest::Client::builder().no_proxy().build().expect("a client");
        Self { http, url: url(variable) }
    }

    /// Sends a request, and returns the answer with any status.
    pub(crate) async fn send(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let method = method.parse().expect("a method");
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.expect("an answer");
        let status = response.status().as_u16();
        (status, response.json().await.unwrap_or_default())
    }

    /// Sends a request that has to succeed.
    pub(crate) async fn ok(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, answer) = self.send(method, path, Some(body)).await;
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }
}
