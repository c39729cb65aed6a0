//! Where the servers are, how to log in, and how much to send at once.

use std::fmt;
use std::time::Duration;

use elasticsearch::http::Url;
use txn_core::store::{StoreError, StoreErrorKind};

/// How an [`EsStore`](crate::EsStore) reaches its cluster. Nothing of it is printed that is secret.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EsConfig {
    pub(crate) urls: Vec<Url>,
    pub(crate) auth: EsAuth,
    pub(crate) certificate_authority: Option<Vec<u8>>,
    pub(crate) request_timeout: Duration,
    pub(crate) admin_timeout: Duration,
    pub(crate) max_bulk_items: usize,
    pub(crate) max_bulk_bytes: usize,
    pub(crate) compression: bool,
    pub(crate) proxy_from_environment: bool,
}

/// How to log in.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum EsAuth {
    /// Not at all.
    #[default]
    None,
    /// With a user and a password (HTTP basic).
    Basic {
        /// The user.
        user: String,
        /// The password; never printed.
        password: String,
    },
    /// With an API key in its encoded form, as the server hands it out (`base64(id:key)`).
    ApiKey(String),
}

impl fmt::Debug for EsAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Basic { user, .. } => write!(f, "Basic({user:?}, ***)"),
            Self::ApiKey(_) => f.write_str("ApiKey(***)"),
        }
    }
}

impl EsConfig {
    /// A configuration for the nodes of one cluster, each named as `http(s)://host:port`. Requests
    /// go round robin. A user and a password in the first address that has them are taken over as
    /// [`EsAuth::Basic`]; they are never printed.
    ///
    /// # Errors
    /// [`StoreErrorKind::Misconfigured`] for an address that is none, or if there are none.
    pub fn new<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Self, StoreError> {
        let mut config = Self {
            urls: Vec::new(),
            auth: EsAuth::None,
            certificate_authority: None,
            request_timeout: Duration::from_secs(10),
            admin_timeout: Duration::from_secs(30),
            max_bulk_items: 500,
            max_bulk_bytes: 10 << 20,
            compression: false,
            proxy_from_environment: false,
        };
        for url in urls {
            let (url, auth) = parse(url.as_ref())?;
            config.urls.push(url);
            if let (EsAuth::None, Some(auth)) = (&config.auth, auth) {
                config.auth = auth;
            }
        }
        if config.urls.is_empty() {
            return Err(misconfigured("no server address is given".to_owned()));
        }
        Ok(config)
    }

    /// A configuration for one address, such as `https://user:password@host:9200`.
    ///
    /// # Errors
    /// [`StoreErrorKind::Misconfigured`] if it is no such address.
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        Self::new([url])
    }

    /// Logs in with this.
    #[must_use]
    pub fn with_auth(mut self, auth: EsAuth) -> Self {
        self.auth = auth;
        self
    }

    /// Logs in with a user and a password.
    #[must_use]
    pub fn with_basic_auth(self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.with_auth(EsAuth::Basic { user: user.into(), password: password.into() })
    }

    /// Logs in with an API key in its encoded form.
    #[must_use]
    pub fn with_api_key(self, key: impl Into<String>) -> Self {
        self.with_auth(EsAuth::ApiKey(key.into()))
    }

    /// Trusts servers whose certificates these authorities (PEM, one or more) have signed, besides
    /// the public ones.
    #[must_use]
    pub fn with_certificate_authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificate_authority = Some(pem.into());
        self
    }

    /// How long a read or a write may be under way (default 10 s). What is unknown after it may
    /// still be applied later.
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

fn misconfigured(message: String) -> StoreError {
    StoreError::new(StoreErrorKind::Misconfigured, message)
}

/// The address without its user information, and that. The text itself is not repeated in errors:
/// it may hold a password.
fn parse(text: &str) -> Result<(Url, Option<EsAuth>), StoreError> {
    let mut url = Url::parse(text)
        .map_err(|e| misconfigured(format!("a server address is not a URL: {e}")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        let message = "a server address has to look like http(s)://host:port";
        return Err(misconfigured(message.to_owned()));
    }
    let auth = (!url.username().is_empty()).then(|| EsAuth::Basic {
        user: percent_decode(url.username()),
        password: percent_decode(url.password().unwrap_or_default()),
    });
    // Both can fail for addresses without a host only, which were refused above.
    let stripped = url.set_username("").and_then(|()| url.set_password(None));
    stripped.map_err(|()| misconfigured("a server address has no host".to_owned()))?;
    url.set_query(None);
    url.set_fragment(None);
    Ok((url, auth))
}

fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_information_is_taken_over_and_never_printed() {
        let config = EsConfig::from_url("https://elastic:s%40cr%2Fet@db.example:9200").unwrap();
        let EsAuth::Basic { user, password } = &config.auth else { panic!("no login") };
        assert_eq!((user.as_str(), password.as_str()), ("elastic", "s@cr/et"));
        assert_eq!(config.urls[0].as_str(), "https://db.example:9200/");
        let printed = format!("{config:?} {config:#?}");
        assert!(!printed.contains("s@cr/et") && !printed.contains("s%40cr"), "{printed}");
        let printed = format!("{:?}", config.with_api_key("VuaCfGcBCdbkQm"));
        assert!(!printed.contains("VuaCf"), "{printed}");
    }

    #[test]
    fn a_wrong_address_is_refused_without_repeating_it() {
        for text in
            ["", "db:9200", "ftp://u:hunter2@h", "http://u:hunter2@", "http://u:hunter2@h:x"]
        {
            let error = EsConfig::from_url(text).unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{text}");
            assert!(!error.message.contains("hunter2"), "{}", error.message);
        }
        assert!(EsConfig::new(Vec::<String>::new()).is_err());
    }

    #[test]
    fn percent_signs_that_escape_nothing_stay() {
        assert_eq!(percent_decode("50%"), "50%");
        assert_eq!(percent_decode("%zz%41"), "%zzA");
    }
}
