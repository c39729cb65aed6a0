//! Configures the security plugin of OpenSearch.

use std::fs;
use std::path::Path;

use crate::servers::credentials::{Credentials, Password};
use crate::servers::error::{OnPath, Result};
use crate::servers::home::{create, write_private};
use crate::servers::products::tls::Certificates;

/// The password of the superuser, and its hash.
///
/// A random password would need a program that computes such hashes.
const PASSWORD: &str = "txn-only-on-127.0.0.1-for-tests";
const HASH: &str = "$2y$12$WR1T34uRLzG7/dVsNCVP5uZYPYUvmje/0EF4DF.0Um0vVwnV3mTUC";

/// The plugin checks both certificates at the start, even without a second node.
const SETTINGS: &str = "\
plugins.security.ssl.transport.pemcert_filepath: http.crt
plugins.security.ssl.transport.pemkey_filepath: http.key
plugins.security.ssl.transport.pemtrustedcas_filepath: ca.crt
plugins.security.ssl.http.enabled: true
plugins.security.ssl.http.pemcert_filepath: http.crt
plugins.security.ssl.http.pemkey_filepath: http.key
plugins.security.ssl.http.pemtrustedcas_filepath: ca.crt
plugins.security.nodes_dn: [\"CN=txn test server\"]
plugins.security.restapi.roles_enabled: [all_access]
plugins.security.allow_default_init_securityindex: true
plugins.security.audit.type: noop
";

/// The files of the plugin: name, type, and content after the head.
const FILES: [(&str, &str, &str); 8] = [
    ("action_groups", "actiongroups", ""),
    ("allowlist", "allowlist", "config: {enabled: false}\n"),
    ("audit", "audit", "config: {enabled: false}\n"),
    ("config", "config", CONFIG),
    ("nodes_dn", "nodesdn", ""),
    ("roles", "roles", ""),
    ("roles_mapping", "rolesmapping", "all_access: {users: [admin]}\n"),
    ("tenants", "tenants", ""),
];

/// Users log in by name and password.
const CONFIG: &str = "\
config:
  dynamic:
    authc:
      basic:
        http_enabled: true
        order: 0
        http_authenticator: {type: basic, challenge: true}
        authentication_backend: {type: intern}
";

/// Returns the superuser, who is the only user of a new server.
pub(crate) fn superuser() -> Credentials {
    Credentials { username: "admin".to_owned(), password: Password::new(PASSWORD) }
}

/// Writes the files of the plugin, and returns the node's settings.
pub(crate) fn configure(config: &Path) -> Result<String> {
    let certificates = Certificates::make()?;
    for (name, pem) in [
        ("ca.crt", &certificates.authority),
        ("http.crt", &certificates.server),
        ("http.key", &certificates.server_key),
    ] {
        write_private(&config.join(name), pem)?;
    }
    let folder = config.join("opensearch-security");
    create(&folder)?;
    let users = format!("admin: {{hash: \"{HASH}\"}}\n");
    let users = ("internal_users", "internalusers", users.as_str());
    for (name, kind, content) in FILES.into_iter().chain([users]) {
        let path = folder.join(format!("{name}.yml"));
        let text = format!("_meta: {{type: {kind}, config_version: 2}}\n{content}");
        fs::write(&path, text).on("write", &path)?;
    }
    Ok(SETTINGS.to_owned())
}
