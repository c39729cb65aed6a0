//! The access of transactions and of plain clients to a server.

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use txn_es::EsConfig;
use txn_testkit::env::Secured;

use crate::Failure;
use crate::content::Content;

/// The access to a server, and the content of its accounts.
#[derive(Clone, Debug)]
pub struct Setup {
    pub(crate) url: String,
    pub(crate) transactions: EsConfig,
    pub(crate) plain: reqwest::Client,
    pub(crate) content: Content,
}

/// How plain clients use HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Http {
    /// With kept connections and without compression, as transactions do.
    #[default]
    Kept,
    /// With a connection for each request. Transactions keep their connections.
    NewConnections,
    /// With kept connections and compressed answers, for transactions, too.
    Compressed,
}

impl Setup {
    /// Creates the default setup for an address.
    ///
    /// # Errors
    /// If the address is invalid, or no client can be created.
    pub fn new(url: &str) -> Result<Self, Failure> {
        Self::with_http(url, Http::default())
    }

    /// Creates a setup with this use of HTTP.
    ///
    /// # Errors
    /// As [`Setup::new`].
    pub fn with_http(url: &str, http: Http) -> Result<Self, Failure> {
        let plain = client(http, crate::http_builder())?;
        let transactions = EsConfig::from_url(url)?.with_compression(http == Http::Compressed);
        Ok(Self { url: bare(url), transactions, plain, content: Content::default() })
    }

    /// Creates a setup with TLS, a user and a password.
    ///
    /// # Errors
    /// As [`Setup::new`]; if the certificate cannot be read.
    pub fn secured(secured: &Secured, http: Http) -> Result<Self, Failure> {
        let authority = std::fs::read(&secured.ca_certificate)?;
        let (user, password) = (&secured.username, secured.password.expose());
        let transactions = EsConfig::from_url(&secured.url)?
            .with_basic_auth(user.as_str(), password)
            .with_certificate_authority(authority.clone());
        let request = reqwest::Client::new().get(&secured.url).basic_auth(user, Some(password));
        let login = request.build()?.headers().get(AUTHORIZATION).cloned();
        let login: HeaderValue = login.ok_or("no login")?;
        let builder = crate::http_builder()
            .default_headers(HeaderMap::from_iter([(AUTHORIZATION, login)]))
            .add_root_certificate(reqwest::Certificate::from_pem(&authority)?);
        let (url, plain) = (bare(&secured.url), client(http, builder)?);
        Ok(Self { url, transactions, plain, content: Content::default() })
    }

    /// Sets the content of accounts.
    #[must_use]
    pub fn with_content(mut self, content: Content) -> Self {
        self.content = content;
        self
    }
}

fn client(http: Http, builder: reqwest::ClientBuilder) -> reqwest::Result<reqwest::Client> {
    match http {
        Http::Kept => builder,
        Http::NewConnections => builder.pool_max_idle_per_host(0),
        Http::Compressed => builder.gzip(true),
    }
    .build()
}

fn bare(url: &str) -> String {
    url.trim_end_matches('/').to_owned()
}
