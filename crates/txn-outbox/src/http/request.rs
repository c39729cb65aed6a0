//! An HTTP request as data, and its validation before it is stored.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

/// The maximum number of bytes of a URL.
const MOST_URL: usize = 4 << 10;

/// The maximum number of headers.
const MOST_HEADERS: usize = 32;

/// The maximum number of bytes of a header's name and text.
///
/// The limit applies to the name of a secret, too.
const MOST_TEXT: usize = 4 << 10;

/// Headers of the connection, of the message, or of the dispatcher.
const OURS: [&str; 16] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "idempotency-key",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers with a secret text.
const SECRET: [&str; 2] = ["authorization", "cookie"];

/// An HTTP request that is sent after a commit.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct HttpRequest {
    /// The method, such as `POST`.
    pub method: Method,
    /// The whole URL, `http` or `https`, without credentials and fragment.
    pub url: String,
    /// Headers by name, except those of the connection and the message length.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, HeaderText>,
    /// The body; none sends a request without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Body>,
    /// The key of the request. Requests of one key are sent in commit order.
    ///
    /// Requests without a key have no order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The methods of a request.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "UPPERCASE")]
#[non_exhaustive]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `PATCH`
    Patch,
    /// `DELETE`
    Delete,
}

impl Method {
    /// The name of the method in HTTP.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// The text of a header.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, deny_unknown_fields)]
pub enum HeaderText {
    /// The literal text, which is also stored.
    Text(String),
    /// The name of a secret, which each call retrieves again.
    ///
    /// The outbox never stores the secret.
    Secret {
        /// The name.
        secret: String,
    },
}

impl HeaderText {
    /// Refers to the secret of this name.
    pub fn secret(name: impl Into<String>) -> Self {
        Self::Secret { secret: name.into() }
    }
}

/// The body of a request.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Body {
    /// A JSON value, by default with the type `application/json`.
    Json(#[serde(deserialize_with = "txn_lock::exact::deserialize")] Value),
    /// A literal text, by default with the type `text/plain; charset=utf-8`.
    Text(String),
}

impl HttpRequest {
    /// Creates a request without headers and body.
    pub fn new(method: Method, url: impl Into<String>) -> Self {
        Self { method, url: url.into(), headers: BTreeMap::new(), body: None, key: None }
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: &str, text: HeaderText) -> Self {
        self.headers.insert(name.to_owned(), text);
        self
    }

    /// Sets [`HttpRequest::body`].
    #[must_use]
    pub fn with_body(mut self, body: Body) -> Self {
        self.body = Some(body);
        self
    }

    /// Sets [`HttpRequest::key`].
    #[must_use]
    pub fn with_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Returns the origin of the URL, such as `https://api.example.com:443`.
    ///
    /// `None` if the URL has none.
    #[must_use]
    pub fn origin(&self) -> Option<String> {
        let url = Url::parse(&self.url).ok()?;
        (url.has_host() && url.port_or_known_default().is_some()).then(|| origin(&url))
    }

    /// Validates the request, and returns its URL.
    pub(crate) fn check(&self, most_bytes: usize) -> Result<Url, String> {
        if self.url.len() > MOST_URL {
            let bytes = self.url.len();
            return Err(format!("the URL has {bytes} bytes, at most {MOST_URL} are allowed"));
        }
        let url = Url::parse(&self.url).map_err(|error| format!("the URL: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("the scheme of the URL is neither http nor https".to_owned());
        }
        if !url.has_host() || url.port_or_known_default().is_none_or(|port| port == 0) {
            return Err("the URL names no host and port".to_owned());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("the URL has credentials: name a secret in a header".to_owned());
        }
        if url.fragment().is_some() {
            return Err("the URL has a fragment, which is never sent".to_owned());
        }
        if self.body.is_some() && matches!(self.method, Method::Get | Method::Head) {
            return Err(format!("a body is not allowed with {}", self.method.name()));
        }
        if self.headers.len() > MOST_HEADERS {
            let count = self.headers.len();
            return Err(format!("it has {count} headers, at most {MOST_HEADERS} are allowed"));
        }
        let mut seen = Vec::new();
        for (name, text) in &self.headers {
            header(name, text).map_err(|why| {
                let name: String = name.chars().take(40).collect();
                format!("the header {name:?} {why}")
            })?;
            let lower = name.to_ascii_lowercase();
            if seen.contains(&lower) {
                return Err(format!("the header {lower:?} is given twice"));
            }
            seen.push(lower);
        }
        let bytes = serde_json::to_string(self).map_err(|error| error.to_string())?.len();
        if bytes > most_bytes {
            return Err(format!("it has {bytes} bytes as JSON, at most {most_bytes} are allowed"));
        }
        Ok(url)
    }
}

fn header(name: &str, text: &HeaderText) -> Result<(), &'static str> {
    let is_token = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    if name.is_empty() || name.len() > MOST_TEXT || !name.bytes().all(is_token) {
        return Err("has a name that no header can have");
    }
    let name = name.to_ascii_lowercase();
    if OURS.contains(&&*name) {
        return Err("belongs to the connection or to the dispatcher");
    }
    match text {
        HeaderText::Text(_) if SECRET.contains(&&*name) => {
            Err("is a secret: give the name of one instead of the text")
        }
        HeaderText::Text(text) => match text.len() <= MOST_TEXT
            && text.bytes().all(|c| c == b'\t' || (b' '..=b'~').contains(&c))
        {
            true => Ok(()),
            false => Err("has a text that is too long, or is not printable ASCII"),
        },
        HeaderText::Secret { secret } => match txn_lock::name::fits(secret, MOST_TEXT) {
            true => Ok(()),
            false => Err("names no secret"),
        },
    }
}

/// The origin of a request, without parts that may be confidential.
pub(crate) fn origin(url: &Url) -> String {
    let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default());
    format!("{}://{host}:{}", url.scheme(), port.unwrap_or_default())
}

/// Leaves bodies, queries and header texts out of logs.
impl fmt::Debug for HttpRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = Url::parse(&self.url).map_or_else(|_| String::new(), |url| origin(&url));
        f.debug_struct("HttpRequest")
            .field("method", &self.method)
            .field("origin", &origin)
            .field("headers", &self.headers.keys())
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for HeaderText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Self::Secret { secret } => f.debug_tuple("Secret").field(secret).finish(),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Json(_) => "Json",
            Self::Text(_) => "Text",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(request: &HttpRequest) -> String {
        request.check(2_000).expect_err("refused")
    }

    #[test]
    fn invalid_request_is_refused_with_the_reason() {
        let post = |url: &str| HttpRequest::new(Method::Post, url);
        for (url, part) in [
            ("nowhere", "the URL"),
            ("file:///etc/passwd", "neither http nor https"),
            ("https://user:word@a.example/", "credentials"),
            ("https://a.example/#part", "fragment"),
            ("https://a.example:0/", "no host and port"),
            ("http:///", "the URL"),
        ] {
            let why = why(&post(url));
            assert!(why.contains(part) && !why.contains("word"), "{url}: {why}");
        }
        let sound = || post("https://a.example/hook?x=1");
        assert_eq!(sound().check(2_000).map(|url| origin(&url)).unwrap(), "https://a.example:443");
        let text = |text: &str| HeaderText::Text(text.to_owned());
        for (name, value, part) in [
            ("Host", text("b.example"), "belongs to"),
            ("content-length", text("1"), "belongs to"),
            ("Transfer-Encoding", text("chunked"), "belongs to"),
            ("idempotency-key", text("1"), "belongs to"),
            ("Authorization", text("Bearer x"), "is a secret"),
            ("a b", text("1"), "no header can have"),
            ("a", text("1\r\nb: 2"), "not printable"),
            ("a", HeaderText::secret(""), "names no secret"),
        ] {
            let why = why(&sound().with_header(name, value));
            assert!(why.contains(part) && !why.contains("Bearer"), "{name}: {why}");
        }
        let twice = sound().with_header("A", text("1")).with_header("a", text("2"));
        assert!(why(&twice).contains("given twice"));
        let large = sound().with_body(Body::Text("x".repeat(2_000)));
        assert!(why(&large).contains("at most 2000 are allowed"));
        let get =
            HttpRequest::new(Method::Get, "https://a.example/").with_body(Body::Json(1.into()));
        assert!(why(&get).contains("is not allowed with GET"));
        let secret = sound().with_header("authorization", HeaderText::secret("API"));
        assert!(secret.check(2_000).is_ok());
    }

    #[test]
    fn request_round_trips_and_debug_shows_no_content() {
        let text = r#"{"method":"POST","url":"https://a.example/?q=word","headers":{"authorization":{"secret":"API"},
            "x-a":"word"},"body":{"json":{"a":"word"}},"key":"order-1"}"#;
        let request: HttpRequest = serde_json::from_str(text).unwrap();
        let again = serde_json::to_string(&request).unwrap();
        assert_eq!(serde_json::from_str::<HttpRequest>(&again).unwrap(), request);
        assert!(!format!("{request:?} {:?}", request.headers).contains("word"));
        let unknown = r#"{"method":"POST","url":"https://a.example/","more":1}"#;
        assert!(serde_json::from_str::<HttpRequest>(unknown).is_err());
        for (known, unknown) in [("POST", "TRACE"), (r#""API""#, r#""API","more":1"#)] {
            let unknown = text.replace(known, unknown);
            assert!(serde_json::from_str::<HttpRequest>(&unknown).is_err(), "{unknown}");
        }
    }
}
