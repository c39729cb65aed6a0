//! The addresses of servers, from variables that `cargo xtask test` sets.
//!
//! The functions are helpers for tests: without a variable they panic, with the command to run.

use std::path::PathBuf;

use crate::servers::{Password, ServerKind};

/// The address of a single Elasticsearch 8.
pub const ELASTICSEARCH_URL: &str = "TXN_ELASTICSEARCH_URL";
/// The address of a single Elasticsearch 7.
pub const ELASTICSEARCH7_URL: &str = "TXN_ELASTICSEARCH7_URL";
/// The address of a single Elasticsearch 9.
pub const ELASTICSEARCH9_URL: &str = "TXN_ELASTICSEARCH9_URL";
/// The address of a single OpenSearch 3.
pub const OPENSEARCH_URL: &str = "TXN_OPENSEARCH_URL";
/// The address of a single OpenSearch 2.
pub const OPENSEARCH2_URL: &str = "TXN_OPENSEARCH2_URL";
/// The addresses of the nodes of one cluster, separated by commas.
pub const CLUSTER_URL: &str = "TXN_CLUSTER_URL";
/// The address of an Elasticsearch with users and TLS.
pub const SECURED_URL: &str = "TXN_SECURED_URL";
/// The path of the authority's certificate (PEM) of the secured server.
pub const SECURED_CA: &str = "TXN_SECURED_CA";
/// The name of the secured server's superuser.
pub const SECURED_USER: &str = "TXN_SECURED_USER";
/// The password of [`SECURED_USER`].
pub const SECURED_PASSWORD: &str = "TXN_SECURED_PASSWORD";

/// The address of an OpenSearch with its security plugin.
pub const SECURED_OPENSEARCH_URL: &str = "TXN_SECURED_OPENSEARCH_URL";
/// The path of the authority's certificate (PEM) of that server.
pub const SECURED_OPENSEARCH_CA: &str = "TXN_SECURED_OPENSEARCH_CA";
/// The name of that server's superuser.
pub const SECURED_OPENSEARCH_USER: &str = "TXN_SECURED_OPENSEARCH_USER";
/// The password of [`SECURED_OPENSEARCH_USER`].
pub const SECURED_OPENSEARCH_PASSWORD: &str = "TXN_SECURED_OPENSEARCH_PASSWORD";

/// The variables of the two servers with users, in the order of the fields of [`Secured`].
pub(crate) const SECURED_VARIABLES: [&str; 4] =
    [SECURED_URL, SECURED_CA, SECURED_USER, SECURED_PASSWORD];
pub(crate) const SECURED_OPENSEARCH_VARIABLES: [&str; 4] = [
    SECURED_OPENSEARCH_URL,
    SECURED_OPENSEARCH_CA,
    SECURED_OPENSEARCH_USER,
    SECURED_OPENSEARCH_PASSWORD,
];

/// The access to a secured server.
#[derive(Debug, Clone)]
pub struct Secured {
    /// The address, `https://127.0.0.1:…`.
    pub url: String,
    /// The certificate (PEM) of the authority that signed the server's certificate.
    pub ca_certificate: PathBuf,
    /// The name of the user.
    pub username: String,
    /// The password of the user.
    pub password: Password,
}

impl Secured {
    /// Returns the same server with another user, who has the same password.
    ///
    /// Elasticsearch has the users of `servers/products/roles.yml`.
    #[must_use]
    pub fn as_user(&self, name: &str) -> Self {
        Self { username: name.to_owned(), ..self.clone() }
    }
}

/// Returns the address of a single Elasticsearch 8.
///
/// # Panics
/// If `TXN_ELASTICSEARCH_URL` is not set.
#[must_use]
pub fn elasticsearch_url() -> String {
    require(ELASTICSEARCH_URL, ServerKind::Elasticsearch)
}

/// Returns the address of a single Elasticsearch 7.
///
/// # Panics
/// If `TXN_ELASTICSEARCH7_URL` is not set.
#[must_use]
pub fn elasticsearch7_url() -> String {
    require(ELASTICSEARCH7_URL, ServerKind::Elasticsearch7)
}

/// Returns the address of a single Elasticsearch 9.
///
/// # Panics
/// If `TXN_ELASTICSEARCH9_URL` is not set.
#[must_use]
pub fn elasticsearch9_url() -> String {
    require(ELASTICSEARCH9_URL, ServerKind::Elasticsearch9)
}

/// Returns the address of a single OpenSearch 3.
///
/// # Panics
/// If `TXN_OPENSEARCH_URL` is not set.
#[must_use]
pub fn opensearch_url() -> String {
    require(OPENSEARCH_URL, ServerKind::OpenSearch)
}

/// Returns the address of a single OpenSearch 2.
///
/// # Panics
/// If `TXN_OPENSEARCH2_URL` is not set.
#[must_use]
pub fn opensearch2_url() -> String {
    require(OPENSEARCH2_URL, ServerKind::OpenSearch2)
}

/// Returns the addresses of one server of each supported version.
///
/// # Panics
/// If one of the variables is not set.
#[must_use]
pub fn version_urls() -> [String; 5] {
    [
        elasticsearch7_url(),
        elasticsearch_url(),
        elasticsearch9_url(),
        opensearch2_url(),
        opensearch_url(),
    ]
}

/// Returns the addresses of the nodes of a three-node Elasticsearch 8.
///
/// # Panics
/// If `TXN_CLUSTER_URL` is not set.
#[must_use]
pub fn cluster_urls() -> Vec<String> {
    split(&require(CLUSTER_URL, ServerKind::Cluster))
}

/// Returns the Elasticsearch 8 with users and TLS.
///
/// # Panics
/// If one of the `TXN_SECURED_…` variables is not set.
#[must_use]
pub fn secured() -> Secured {
    access(ServerKind::Secured, SECURED_VARIABLES)
}

/// Returns the OpenSearch 3 with its security plugin.
///
/// # Panics
/// If one of the `TXN_SECURED_OPENSEARCH_…` variables is not set.
#[must_use]
pub fn secured_opensearch() -> Secured {
    access(ServerKind::SecuredOpenSearch, SECURED_OPENSEARCH_VARIABLES)
}

fn access(kind: ServerKind, names: [&str; 4]) -> Secured {
    let [url, ca_certificate, username, password] = names.map(|name| require(name, kind));
    Secured {
        url,
        ca_certificate: ca_certificate.into(),
        username,
        password: Password::new(password),
    }
}

fn require(variable: &str, kind: ServerKind) -> String {
    match std::env::var(variable) {
        Ok(value) if !value.trim().is_empty() => value,
        _ => panic!("{}", advice(variable, kind)),
    }
}

fn advice(variable: &str, kind: ServerKind) -> String {
    format!(
        "{variable} is not set: run `cargo xtask test`, or run \
         `cargo xtask servers up {kind}` and export the lines it prints"
    )
}

fn split(urls: &str) -> Vec<String> {
    urls.split(',').map(str::trim).filter(|url| !url.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_addresses_may_hold_blanks() {
        assert_eq!(split("http://a:1, http://b:2,"), ["http://a:1", "http://b:2"]);
    }

    #[test]
    fn the_advice_names_the_variable_and_the_command() {
        let text = advice(OPENSEARCH_URL, ServerKind::OpenSearch);
        assert!(text.contains("TXN_OPENSEARCH_URL"), "{text}");
        assert!(text.contains("cargo xtask servers up opensearch"), "{text}");
    }
}
