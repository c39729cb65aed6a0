//! A gateway in front of a store, and requests to it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use txn_core::store::{MemoryStore, Store};
use txn_core::{Config, Domain};
use txn_redb::RedbStore;
use txn_serve::{ServeConfig, Server};

/// A gateway.
pub(crate) struct Desk {
    pub(crate) server: Server,
    pub(crate) domain: Domain,
    _directory: Option<tempfile::TempDir>,
}

/// The status, the headers and the body of an answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: hyper::HeaderMap,
    pub(crate) text: String,
}

/// Returns a member of a problem.
///
/// On a path of the servers the member is in the error.
pub(crate) fn told<'a>(body: &'a Value, name: &str) -> &'a Value {
    body.get(name).unwrap_or(&body["error"][name])
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Checks the status, and returns the body.
    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        self.json()
    }

    /// Checks the status and the code of a problem.
    #[track_caller]
    pub(crate) fn fails(self, status: u16, code: &str) -> Value {
        let header = self.headers.get("retry-after").is_some();
        let body = self.is(status);
        assert_eq!(told(&body, "code"), code, "{body}");
        assert_eq!(body["status"], status, "{body}");
        assert!(body["error"]["type"].is_string() && body["error"]["reason"].is_string(), "{body}");
        assert_eq!(header, status == 429 || status == 503, "{body}");
        body
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

pub(crate) fn config() -> Config {
    Config::default().with_janitor_interval(None).with_lease(Duration::from_millis(200))
}

/// The socket of a gateway.
pub(crate) struct Socket {
    pub(crate) address: SocketAddr,
    pub(crate) stop: oneshot::Sender<()>,
    /// Whether the drain cut no request.
    pub(crate) served: JoinHandle<bool>,
}

impl Desk {
    /// Serves the gateway on a local socket until it is stopped.
    pub(crate) async fn listen(&self) -> Socket {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel();
        let server = self.server.clone();
        let served = tokio::spawn(async move {
            let stopped = async { drop(stopped.await) };
            server.serve(listener, stopped).await
        });
        Socket { address, stop, served }
    }

    pub(crate) async fn with(store: Arc<dyn Store>, config: ServeConfig) -> Self {
        let domain = Domain::open_or_create(store, "shop", self::config()).await.expect("opens");
        Self::of(domain, config)
    }

    pub(crate) fn of(domain: Domain, config: ServeConfig) -> Self {
        let server = Server::new(&domain, config).expect("fits");
        Self { server, domain, _directory: None }
    }

    /// A gateway on the memory store, which creates collections.
    pub(crate) async fn memory() -> Self {
        let config = ServeConfig::default().with_create_collections(true);
        Self::with(Arc::new(MemoryStore::new()), config).await
    }

    /// A gateway on an embedded file.
    pub(crate) async fn file() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let store = RedbStore::open(directory.path().join("shop.redb")).expect("opens");
        let config = ServeConfig::default().with_create_collections(true);
        Self { _directory: Some(directory), ..Self::with(Arc::new(store), config).await }
    }

    /// Sends a request with headers.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).expect("a request");
        let (parts, body) = self.server.answer(request).await.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        let text = String::from_utf8(body.to_vec()).expect("UTF-8");
        Answer { status: parts.status, headers: parts.headers, text }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], "").await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, &[], "").await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PUT, path, &[("content-type", "application/json")], body.to_string())
            .await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, &[("content-type", "application/json")], body.to_string())
            .await
    }

    /// Sends the lines of a bulk.
    pub(crate) async fn bulk(&self, path: &str, lines: &[Value]) -> Answer {
        let headers = [("content-type", "application/x-ndjson")];
        self.send(Method::POST, path, &headers, text(lines)).await
    }

    /// Sends a request under a key.
    pub(crate) async fn keyed(&self, path: &str, key: &str, body: &Value) -> Answer {
        let headers = [("content-type", "application/json"), ("idempotency-key", key)];
        self.send(Method::POST, path, &headers, body.to_string()).await
    }

    /// The content of a document; `null` if there is none.
    pub(crate) async fn content(&self, path: &str) -> Value {
        let answer = self.get(path).await;
        let body = answer.json();
        assert_eq!(body["found"] == true, answer.status == StatusCode::OK, "{body}");
        body["_source"].clone()
    }
}

/// The text of a bulk.
pub(crate) fn text(lines: &[Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// An operation that adds to the field `n`.
pub(crate) fn add(collection: &str, id: &str, amount: i64) -> Value {
    let target = json!({ "collection": collection, "id": id });
    json!({ "add": { "target": target, "path": "/n", "amount": amount, "min": 0 } })
}
