//! A plain client beside the engine: what an application without transactions sees.

use serde_json::Value;

/// Sends requests to one server.
#[derive(Clone)]
pub struct Plain {
    http: reqwest::Client,
    url: String,
    login: Option<(String, String)>,
}

/// Shows no login.
impl std::fmt::Debug for Plain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plain").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Plain {
    /// A client of the server at an address.
    ///
    /// # Panics
    /// If there can be no HTTP client.
    #[must_use]
    pub fn new(url: &str) -> Self {
        let http = reqwest::Client::builder().no_proxy().build().expect("a client");
        Self::with(http, url, None)
    }

    /// A client with a login, that sends by an HTTP client of the caller's.
    #[must_use]
    pub fn with(http: reqwest::Client, url: &str, login: Option<(String, String)>) -> Self {
        Self { http, url: url.trim_end_matches('/').to_owned(), login }
    }

    /// The address of the server, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sends a request: the status and the text of the answer.
    ///
    /// # Panics
    /// If there is no answer.
    pub async fn text(&self, method: &str, path: &str, body: Option<String>) -> (u16, String) {
        let method = method.parse().expect("a method");
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if let Some((user, password)) = &self.login {
            request = request.basic_auth(user, Some(password));
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        let response = request.send().await.expect("an answer");
        (response.status().as_u16(), response.text().await.expect("a text"))
    }

    /// Sends a request that has to succeed: its answer.
    ///
    /// # Panics
    /// If it does not.
    pub async fn ok(&self, method: &str, path: &str, body: Option<String>) -> Value {
        let (status, text) = self.text(method, path, body).await;
        assert!((200..300).contains(&status), "{method} {path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Makes an index, from a body of JSON.
    ///
    /// # Panics
    /// If that fails.
    pub async fn make(&self, index: &str, body: &Value) {
        self.ok("PUT", &format!("/{index}"), Some(body.to_string())).await;
    }

    /// Writes a document as it stands.
    ///
    /// # Panics
    /// If that fails.
    pub async fn put(&self, index: &str, id: &str, source: &str) {
        self.ok("PUT", &format!("/{index}/_doc/{id}"), Some(source.to_owned())).await;
    }

    /// The source of a document, with the bytes that it has; `None` if there is none. The id may bring
    /// parameters along: `1?routing=x`.
    ///
    /// # Panics
    /// If the server answers anything else.
    pub async fn source(&self, index: &str, id: &str) -> Option<String> {
        let (status, text) = self.text("GET", &format!("/{index}/_source/{id}"), None).await;
        assert!(matches!(status, 200 | 404), "{status} {text}");
        (status == 200).then_some(text)
    }

    /// How many documents of an index a search finds, as it stands now.
    ///
    /// # Panics
    /// If that fails.
    pub async fn count(&self, index: &str, query: &Value) -> u64 {
        let body = serde_json::json!({ "query": query }).to_string();
        let answer = self.ok("POST", &format!("/{index}/_count"), Some(body)).await;
        answer["count"].as_u64().expect("a number")
    }
}
