//! Settings of the store: servers, login, TLS, timeouts, and sizes of requests.

mod address;
mod auth;
mod credential_file;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use secrecy::{SecretSlice, SecretString};
use txn_store::StoreError;

pub(crate) use auth::Login;
pub use auth::{CredentialProvider, EsAuth, RequestSigner, UnsignedRequest};
pub use credential_file::CredentialFile;

/// The connection settings of an [`EsStore`](crate::EsStore). `Debug` output holds no secrets.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EsConfig {
    pub(crate) urls: Vec<Url>,
    pub(crate) login: Login,
    pub(crate) headers: Vec<(String, SecretString)>,
    pub(crate) certificate_authority: Option<CertificateAuthority>,
    pub(crate) ca_fingerprint: Option<String>,
    pub(crate) client_certificate: Option<ClientCertificate>,
    pub(crate) connect_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) admin_timeout: Duration,
    pub(crate) max_bulk_items: usize,
    pub(crate) max_bulk_bytes: usize,
    pub(crate) compression: bool,
    pub(crate) proxy_from_environment: bool,
}

/// Certificates of authorities (PEM).
#[derive(Clone, Debug)]
pub(crate) enum CertificateAuthority {
    Text(Vec<u8>),
    /// Read again after a change.
    File(PathBuf),
}

/// A certificate and its key (PEM).
#[derive(Clone)]
pub(crate) enum ClientCertificate {
    Text {
        certificates: Vec<u8>,
        key: SecretSlice<u8>,
    },
    /// Read again after a change.
    Files {
        certificates: PathBuf,
        key: PathBuf,
    },
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientCertificate(***)")
    }
}

impl EsConfig {
    /// Creates a configuration for the nodes of one cluster.
    ///
    /// Each node is an `http(s)://host:port`, with a `/prefix` if a proxy serves the node there.
    /// Requests go round robin, and redirects are never followed.
    ///
    /// A user and a password in the first address that has them (`http://user:password@host:port`)
    /// become [`EsAuth::Basic`], and are never printed. Special characters are percent-encoded:
    /// `%40` for `@`, `%2F` for `/`.
    ///
    /// # Errors
    /// [`StoreErrorKind::Misconfigured`](txn_store::StoreErrorKind::Misconfigured) for an invalid
    /// address, or without addresses.
    pub fn new<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Self, StoreError> {
        let mut config = Self {
            urls: Vec::new(),
            login: Login::Fixed(EsAuth::None),
            headers: Vec::new(),
            certificate_authority: None,
            ca_fingerprint: None,
            client_certificate: None,
            connect_timeout: Duration::from_secs(3),
            idle_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(10),
            admin_timeout: Duration::from_secs(30),
            max_bulk_items: 500,
            max_bulk_bytes: 10 << 20,
            compression: false,
            proxy_from_environment: false,
        };
        for url in urls {
            let (url, auth) = address::parse(url.as_ref())?;
            config.urls.push(url);
            if let (Login::Fixed(EsAuth::None), Some(auth)) = (&config.login, auth) {
                config.login = Login::Fixed(auth);
            }
        }
        if config.urls.is_empty() {
            return Err(address::misconfigured("no server address is given".to_owned()));
        }
        Ok(config)
    }

    /// Creates a configuration for one address, such as `https://user:password@host:9200`.
    ///
    /// # Errors
    /// [`StoreErrorKind::Misconfigured`](txn_store::StoreErrorKind::Misconfigured) for an invalid
    /// address.
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        Self::new([url])
    }

    /// Creates a configuration for the deployment of an Elastic cloud id (`NAME:LETTERS`).
    ///
    /// # Errors
    /// [`StoreErrorKind::Misconfigured`](txn_store::StoreErrorKind::Misconfigured) for an invalid
    /// cloud id.
    pub fn from_cloud_id(id: &str) -> Result<Self, StoreError> {
        Self::new([address::of_cloud_id(id)?])
    }

    /// Sets the login.
    #[must_use]
    pub fn with_auth(mut self, auth: EsAuth) -> Self {
        self.login = Login::Fixed(auth);
        self
    }

    /// Logs in with a user and a password.
    #[must_use]
    pub fn with_basic_auth(self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.with_auth(EsAuth::basic(user, password))
    }

    /// Logs in with an API key in its encoded form.
    #[must_use]
    pub fn with_api_key(self, key: impl Into<String>) -> Self {
        self.with_auth(EsAuth::api_key(key))
    }

    /// Logs in with a bearer token, such as a service account token.
    #[must_use]
    pub fn with_bearer_token(self, token: impl Into<String>) -> Self {
        self.with_auth(EsAuth::bearer(token))
    }

    /// Logs in with the login of a provider.
    ///
    /// The store asks the provider again after the servers refused the login. So the login can
    /// change while the store is open.
    #[must_use]
    pub fn with_credentials(mut self, provider: Arc<dyn CredentialProvider>) -> Self {
        self.login = Login::Provided(provider);
        self
    }

    /// Signs each request instead of logging in.
    #[must_use]
    pub fn with_request_signer(mut self, signer: Arc<dyn RequestSigner>) -> Self {
        self.login = Login::Signed(signer);
        self
    }

    /// Sends a header with each request, such as a gateway's key.
    ///
    /// The value is a secret. A login replaces an `authorization` header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into().into()));
        self
    }

    /// Trusts these certificate authorities in addition to the public ones.
    ///
    /// The text is PEM, with one or more certificates.
    #[must_use]
    pub fn with_certificate_authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificate_authority = Some(CertificateAuthority::Text(pem.into()));
        self
    }

    /// Trusts the certificate authorities in this file in addition to the public ones.
    ///
    /// As [`EsConfig::with_certificate_authority`], for a file that another program keeps up to
    /// date. Each new connection reads the file, without TLS resumption, so the file should be on a
    /// local disk. A file that cannot be read later, or does not fit, changes nothing.
    #[must_use]
    pub fn with_certificate_authority_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.certificate_authority = Some(CertificateAuthority::File(path.into()));
        self
    }

    /// Trusts only the certificate authority with this fingerprint.
    ///
    /// The fingerprint is the SHA-256 of the certificate in hexadecimal digits, with or without
    /// colons, as Elasticsearch prints it at its first start. The server has to send the
    /// certificate of the authority, and its own certificate has to name the host.
    #[must_use]
    pub fn with_ca_fingerprint(mut self, fingerprint: impl Into<String>) -> Self {
        self.ca_fingerprint = Some(fingerprint.into());
        self
    }

    /// Presents this client certificate (PEM) to servers that ask for one.
    ///
    /// The text also holds the authorities between the certificate and the authority that the
    /// server trusts. `key` is the private key (PEM).
    #[must_use]
    pub fn with_client_certificate(
        mut self,
        certificates: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        let (certificates, key) = (certificates.into(), key.into().into());
        self.client_certificate = Some(ClientCertificate::Text { certificates, key });
        self
    }

    /// Presents the client certificate in these files (PEM) to servers that ask for one.
    ///
    /// As [`EsConfig::with_client_certificate`], for files that another program keeps up to date.
    /// Each new connection reads the files, without TLS resumption, so the files should be on a
    /// local disk. Files that cannot be read later, or do not fit together, change nothing.
    #[must_use]
    pub fn with_client_certificate_files(
        mut self,
        certificates: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        let (certificates, key) = (certificates.into(), key.into());
        self.client_certificate = Some(ClientCertificate::Files { certificates, key });
        self
    }

    /// Sets the timeout of new connections, including TLS (default 3 s).
    ///
    /// After this time the request goes to another node, because this node received nothing. The
    /// time must be longer than the network and a pause of the server (garbage collection) take.
    /// With a time longer than the request timeout, none is left for another node.
    #[must_use]
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long an idle connection is kept (default 30 s).
    ///
    /// The time should be shorter than any load balancer or firewall keeps a connection: a request
    /// on a forgotten connection is lost. Each new connection costs a round trip, with TLS two or
    /// three.
    #[must_use]
    pub fn with_idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// Sets the timeout of reads and writes (default 10 s).
    ///
    /// A node that answers nothing for a tenth of this time leaves the rotation until it answers a
    /// probe, and reads go to another node. A write that is unknown after the timeout may still be
    /// applied later.
    #[must_use]
    pub fn with_request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Sets the timeout of administrative requests (default 30 s).
    ///
    /// These requests create, change or drop collections.
    #[must_use]
    pub fn with_admin_timeout(mut self, timeout: Duration) -> Self {
        self.admin_timeout = timeout;
        self
    }

    /// Sets the maximum number of operations in one request (default 500).
    ///
    /// Larger batches are split.
    #[must_use]
    pub fn with_max_bulk_items(mut self, items: usize) -> Self {
        self.max_bulk_items = items.max(1);
        self
    }

    /// Sets the maximum size of a request's documents (default 10 MiB).
    ///
    /// Larger batches are split. The size is also the limit of one document, and has to stay below
    /// the servers' `http.max_content_length`.
    #[must_use]
    pub fn with_max_bulk_bytes(mut self, bytes: usize) -> Self {
        self.max_bulk_bytes = bytes.max(1);
        self
    }

    /// Lets the servers compress their answers (default: no). Useful only on slow networks.
    #[must_use]
    pub fn with_compression(mut self, compression: bool) -> Self {
        self.compression = compression;
        self
    }

    /// Uses the proxy of the environment (`HTTPS_PROXY` and similar; default: no).
    ///
    /// Servers on this machine are always reached directly.
    #[must_use]
    pub fn with_proxy_from_environment(mut self, proxy: bool) -> Self {
        self.proxy_from_environment = proxy;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_of_an_address_is_used_and_not_printed() {
        let config = EsConfig::from_url("https://elastic:s%40cr%2Fet@db.example:9200").unwrap();
        assert!(matches!(&config.login, Login::Fixed(EsAuth::Basic { .. })));
        let config = config.with_header("x-key", "s@cr/et").with_client_certificate("c", "s@cr/et");
        for config in [config.clone(), config.with_bearer_token("s@cr/et")] {
            let printed = format!("{config:?} {config:#?}");
            assert!(!printed.contains("s@cr/et") && !printed.contains("s%40cr"), "{printed}");
        }
        assert!(EsConfig::new(Vec::<String>::new()).is_err());
    }
}
