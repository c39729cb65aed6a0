//! How a server is reached, and what the accounts on it hold.

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use txn_es::EsConfig;
use txn_testkit::env::Secured;

use crate::Failure;
use crate::content::Content;

/// How a server is reached by transactions and by plain clients, and what the accounts on it hold.
#[derive(Clone, Debug)]
pub struct Setup {
    pub(crate) url: String,
    pub(crate) transactions: EsConfig,
    pub(crate) plain: reqwest::Client,
    pub(crate) content: Content,
}

/// How plain clients speak HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Http {
    /// On connections that are kept, with nothing compressed, as transactions do.
    #[default]
    Kept,
    /// With a connection for each request. Transactions keep theirs.
    NewConnections,
    /// On connections that are kept, with compressed answers; transactions, too.
    Compressed,
}

impl Setup {
    /// As everybody begins.
    ///
    /// # Errors
    /// It is no address, or no client can be made.
    pub fn new(url: &str) -> Result<Self, Failure> {
        Self::with_http(url, Http::default())
    }

    /// With HTTP spoken like that.
    ///
    /// # Errors
    /// As [`Setup::new`].
    pub fn with_http(url: &str, http: Http) -> Result<Self, Failure> {
        let plain = client(http, crate::http_builder())?;
        let transactions = EsConfig::from_url(url)?.with_compression(http == Http::Compressed);
        Ok(Self { url: bare(url), transactions, plain, content: Content::default() })
    }

    /// By TLS, with a user and a password.
    ///
    /// # Errors
    /// As [`Setup::new`]; the certificate cannot be read.
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

    /// With accounts that hold this.
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
