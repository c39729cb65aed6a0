//! Where the servers are, how to log in, and how much to send at once.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use reqwest::Url;
use txn_store::{StoreError, StoreErrorKind};

/// How an [`EsStore`](crate::EsStore) reaches its cluster. Nothing of it is printed that is secret.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EsConfig {
    pub(crate) urls: Vec<Url>,
    pub(crate) auth: EsAuth,
    pub(crate) certificate_authority: Option<Vec<u8>>,
    pub(crate) connect_timeout: Duration,
    pub(crate) idle_timeout: Duration,
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

impl EsAuth {
    /// The value of the header that logs in.
    pub(crate) fn header(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Basic { user, password } => {
                Some(format!("Basic {}", BASE64.encode(format!("{user}:{password}"))))
            }
            Self::ApiKey(key) => Some(format!("ApiKey {key}")),
        }
    }

    /// What of it is secret, in each of its forms.
    pub(crate) fn secrets(&self) -> Vec<String> {
        match self {
            Self::None => Vec::new(),
            Self::Basic { user, password } => {
                vec![BASE64.encode(format!("{user}:{password}")), password.clone()]
            }
            Self::ApiKey(key) => {
                let decoded = BASE64.decode(key).ok().and_then(|text| String::from_utf8(text).ok());
                let secret = decoded.and_then(|text| Some(text.split_once(':')?.1.to_owned()));
                std::iter::once(key.clone()).chain(secret).collect()
            }
        }
    }
}

impl EsConfig {
    /// A configuration for the nodes of one cluster, each named as `http(s)://host:port`. Requests
    /// go round robin, and redirects are never followed. A user and a password in the first address that
    /// has them (`http://user:password@host:port`, special characters percent-encoded: `%40` for `@`, `%2F`
    /// for `/`) are taken over as [`EsAuth::Basic`]; they are never printed.
    ///
    /// # Errors
    /// [`StoreErrorKind::Misconfigured`] for an address that is none or has a path, or if there are none.
    pub fn new<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Self, StoreError> {
        let mut config = Self {
            urls: Vec::new(),
            auth: EsAuth::None,
            certificate_authority: None,
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

    /// How long a connection may take to be made, with its TLS handshake (default 3 s). After this time the request goes
    /// to another node, because this node has got nothing of it. Longer than the network and a pause of the server
    /// (garbage collection) take; shorter than the request timeout, or no time is left for another node.
    #[must_use]
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long an idle connection is kept (default 30 s). Shorter than any load balancer or firewall on the way keeps
    /// one: a request on a forgotten connection is lost. Each new connection costs a round trip, with TLS two or three.
    #[must_use]
    pub fn with_idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// How long a read or a write may be under way (default 10 s). A node that answers nothing for a tenth of this time
    /// is left out until it answers a probe, and reads go to another node. What is unknown after it may
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

/// The address without its user information, and that.
fn parse(text: &str) -> Result<(Url, Option<EsAuth>), StoreError> {
    let text = text.trim();
    let refuse = |fault: &str| {
        Err(misconfigured(format!(
            "the server address {} {fault}: it has to look like http(s)://host:port, with a login \
             http(s)://user:password@host:port, where special characters are percent-encoded (%40 for @, \
             %2F for /, %23 for #)",
            shown(text)
        )))
    };
    if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return refuse("has white space");
    }
    let mut url = match Url::parse(text) {
        Ok(url) => url,
        Err(error) => return refuse(&format!("is no URL ({error})")),
    };
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return refuse("is not one of a server");
    }
    // A password with one of these signs in it ends up here, too.
    if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
        return refuse("goes on behind the host");
    }
    let auth = (!url.username().is_empty() || url.password().is_some()).then(|| EsAuth::Basic {
        user: percent_decode(url.username()),
        password: percent_decode(url.password().unwrap_or_default()),
    });
    // Both can fail for addresses without a host only, which were refused above.
    let stripped = url.set_username("").and_then(|()| url.set_password(None));
    match stripped {
        Ok(()) => Ok((url, auth)),
        Err(()) => refuse("has no host"),
    }
}

/// What of a wrong address may be printed: scheme, host and port. Anything else may be a piece of a password.
fn shown(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) if scheme.chars().all(|c| c.is_ascii_alphabetic()) => {
            (format!("{scheme}://"), rest)
        }
        _ => (String::new(), text),
    };
    let (login, rest) = match rest.rsplit_once('@') {
        Some((_, rest)) => ("***@", rest),
        None => ("", rest),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '[' | ']');
    let end = rest.find(|c: char| !plain(c) && c != ':').unwrap_or(rest.len());
    let (host, tail) = rest.split_at(end);
    let ported = host.rsplit_once(':').filter(|_| !host.ends_with(']'));
    let host = match ported {
        Some((host, port)) if !port.chars().all(|c| c.is_ascii_digit()) => format!("{host}:***"),
        _ => host.to_owned(),
    };
    let tail = if tail.is_empty() { "" } else { "***" };
    format!("\"{scheme}{login}{host}{tail}\"")
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
    fn a_wrong_address_is_shown_without_what_may_be_secret() {
        for (text, shown) in [
            ("", "\"\""),
            ("db:9200", "\"db:9200\""),
            ("shop:hunter2@db:9200", "\"***@db:9200\""),
            ("ftp://u:hunter2@h", "\"ftp://***@h\""),
            ("http://u:hunter2@", "\"http://***@\""),
            ("http://u:hunter2@h:x", "\"http://***@h:***\""),
            ("http://u:hunter2", "\"http://u:***\""),
            ("http://shop:p@hun/ter2:rd@host", "\"http://***@host\""),
            ("http://shop:1/hunter2@host", "\"http://***@host\""),
            ("http://shop:1#hunter2@host", "\"http://***@host\""),
            ("http://shop:1?hunter2@host:9200", "\"http://***@host:9200\""),
            ("http://shop:1\\hunter2@host", "\"http://***@host\""),
            ("http://shop:hunter2 @host", "\"http://***@host\""),
            ("http://host:9200/hunter2", "\"http://host:9200***\""),
            ("http://host:9200?key=hunter2", "\"http://host:9200***\""),
            ("http://[::1]:9200/hunter2", "\"http://[::1]:9200***\""),
        ] {
            let error = EsConfig::from_url(text).unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{text}");
            assert!(error.message.contains(&format!("address {shown} ")), "{}", error.message);
            assert!(error.message.contains("http(s)://host:port"), "{}", error.message);
            for piece in ["hun", "ter2"] {
                assert!(!error.message.contains(piece), "{}", error.message);
            }
        }
        assert!(EsConfig::new(Vec::<String>::new()).is_err());
        for good in ["http://h", " https://h:9200/ ", "http://[::1]:9200", "http://u:p@h"] {
            assert!(EsConfig::from_url(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn a_login_is_a_header() {
        let basic = EsConfig::from_url("http://shop:p%40ss%2Fw%3Ard@host").unwrap().auth;
        assert_eq!(basic.header().as_deref(), Some("Basic c2hvcDpwQHNzL3c6cmQ="));
        assert_eq!(EsAuth::ApiKey("k".to_owned()).header().as_deref(), Some("ApiKey k"));
        assert_eq!(EsAuth::None.header(), None);
    }

    #[test]
    fn percent_signs_that_escape_nothing_stay() {
        assert_eq!(percent_decode("50%"), "50%");
        assert_eq!(percent_decode("%zz%41"), "%zzA");
    }
}
