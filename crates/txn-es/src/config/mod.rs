//! Where the servers are, how to log in, and how much to send at once.

mod address;
mod auth;
mod credential_file;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use secrecy::{SecretSlice, SecretString};
use txn_store::StoreError;

pub(crate) use auth::Login;
pub use auth::{CredentialProvider, EsAuth, RequestSigner, UnsignedRequest};
pub use credential_file::CredentialFile;

/// How an [`EsStore`](crate::EsStore) reaches its cluster. Nothing of it is printed that is secret.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EsConfig {
    pub(crate) urls: Vec<Url>,
    pub(crate) login: Login,
    pub(crate) headers: Vec<(String, SecretString)>,
    pub(crate) certificate_authority: Option<Vec<u8>>,
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

/// A certificate and its key, both PEM.
#[derive(Clone)]
pub(crate) struct ClientCertificate {
    pub(crate) certificates: Vec<u8>,
    pub(crate) key: SecretSlice<u8>,
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientCertificate(***)")
    }
}

impl EsConfig {
    /// A configuration for the nodes of one cluster, each named as `http(s)://host:port`, with
    /// `/prefix` behind it where a proxy serves them there. Requests go round robin, and redirects
    /// are never followed. A user and a password in the first address that has them
    /// (`http://user:password@host:port`, special characters percent-encoded: `%40` for `@`, `%2F`
    /// for `/`) are taken over as [`EsAuth::Basic`]; they are never printed.
    ///
    /// # Errors
    /// [`StoreErrorKind::Misconfigured`](txn_store::StoreErrorKind::Misconfigured) for an address that is none, or if there are none.
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

    /// A configuration for one address, such as `https://user:password@host:9200`.
    ///
    /// # Errors
    /// [`StoreErrorKind::Misconfigured`](txn_store::StoreErrorKind::Misconfigured) if it is no such address.
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        Self::new([url])
    }

    /// A configuration for the deployment that a cloud id of Elastic names (`NAME:LETTERS`).
    ///
    /// # Errors
    /// [`StoreErrorKind::Misconfigured`](txn_store::StoreErrorKind::Misconfigured) if it cannot be read.
    pub fn from_cloud_id(id: &str) -> Result<Self, StoreError> {
        Self::new([address::of_cloud_id(id)?])
    }

    /// Logs in with this.
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

    /// Logs in with a bearer token, such as the token of a service account.
    #[must_use]
    pub fn with_bearer_token(self, token: impl Into<String>) -> Self {
        self.with_auth(EsAuth::bearer(token))
    }

    /// Logs in with what the provider hands out. The provider is asked again when the servers
    /// refuse the login, so that it can change while the store is open.
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

    /// Sends a header with each request, such as the key that a gateway asks for. Its value is
    /// treated as a secret. A login replaces a header `authorization`.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into().into()));
        self
    }

    /// Trusts servers whose certificates these authorities (PEM, one or more) have signed, besides
    /// the public ones.
    #[must_use]
    pub fn with_certificate_authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificate_authority = Some(pem.into());
        self
    }

    /// Trusts the certificate authority with this fingerprint and no other: the SHA-256 of its
    /// certificate in hexadecimal digits, with or without colons, as Elasticsearch prints it at its
    /// first start. The server has to send the authority's certificate along with its own, and its
    /// own has to name the host.
    #[must_use]
    pub fn with_ca_fingerprint(mut self, fingerprint: impl Into<String>) -> Self {
        self.ca_fingerprint = Some(fingerprint.into());
        self
    }

    /// Shows this certificate (PEM, with the authorities between it and the one that the server
    /// trusts) to servers that ask for one; `key` is its private key (PEM).
    #[must_use]
    pub fn with_client_certificate(
        mut self,
        certificates: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        let (certificates, key) = (certificates.into(), key.into().into());
        self.client_certificate = Some(ClientCertificate { certificates, key });
        self
    }

    /// How long a connection may take to be made, with its TLS handshake (default 3 s). After this
    /// time the request goes to another node, because this node has got nothing of it. Longer than
    /// the network and a pause of the server (garbage collection) take; shorter than the request
    /// timeout, or no time is left for another node.
    #[must_use]
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long an idle connection is kept (default 30 s). Shorter than any load balancer or
    /// firewall on the way keeps one: a request on a forgotten connection is lost. Each new
    /// connection costs a round trip, with TLS two or three.
    #[must_use]
    pub fn with_idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// How long a read or a write may be under way (default 10 s). A node that answers nothing for
    /// a tenth of this time is left out until it answers a probe, and reads go to another node.
    /// What is unknown after it may still be applied later.
    #[must_use]
    pub fn with_request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// How long a request that makes, changes or drops collections may be under way (default 30 s).
    #[must_use]
    pub fn with_admin_timeout(mut self, timeout: Duration) -> Self {
        self.admin_timeout = timeout;
        self
    }

    /// Operations in one request (default 500); larger batches are split.
    #[must_use]
    pub fn with_max_bulk_items(mut self, items: usize) -> Self {
        self.max_bulk_items = items.max(1);
        self
    }

    /// Bytes of documents in one request (default 10 MiB); larger batches are split. It is also the
    /// limit of one document, and has to stay below the servers' `http.max_content_length`.
    #[must_use]
    pub fn with_max_bulk_bytes(mut self, bytes: usize) -> Self {
        self.max_bulk_bytes = bytes.max(1);
        self
    }

    /// Lets the servers compress their answers (default: no). Worth it on slow networks only.
    #[must_use]
    pub fn with_compression(mut self, compression: bool) -> Self {
        self.compression = compression;
        self
    }

    /// Uses the proxy that the environment names (`HTTPS_PROXY` and its like; default: no).
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
    fn user_information_is_taken_over_and_nothing_secret_is_printed() {
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
