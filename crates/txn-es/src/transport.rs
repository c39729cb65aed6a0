//! One request, one answer. Nothing is ever sent twice, but for one case: a node that refuses the
//! connection has got nothing, and the next node is asked once.

use std::error::Error as _;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use elasticsearch::auth::Credentials;
use elasticsearch::cert::{Certificate, CertificateValidation};
use elasticsearch::http::Method;
use elasticsearch::http::headers::{ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use elasticsearch::http::transport::{
    SingleNodeConnectionPool, Transport as Client, TransportBuilder,
};
use txn_core::store::{StoreError, StoreErrorKind};

use crate::config::{EsAuth, EsConfig};

/// The connections to the nodes of one cluster.
pub(crate) struct Transport {
    nodes: Vec<Node>,
    next: AtomicUsize,
    identity_only: bool,
    request_timeout: Duration,
    admin_timeout: Duration,
}

struct Node {
    /// Scheme, host and port.
    label: String,
    client: Client,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client itself prints the password.
        f.debug_list().entries(self.nodes.iter().map(|node| &node.label)).finish()
    }
}

/// What a request is, for the log and for the time it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Reads and writes of documents.
    Data,
    /// Administration: the whole cluster has to agree.
    Admin,
}

/// One request.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: Method,
    /// Names in it are already escaped.
    pub(crate) path: &'a str,
    pub(crate) query: &'a [(&'a str, &'a str)],
    pub(crate) body: Option<Bytes>,
    /// How many documents it is about.
    pub(crate) items: usize,
    pub(crate) patience: Patience,
}

/// The answer of a server, of whatever status.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

/// No answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No node has got a byte of the request.
    NotSent(String),
    /// The request may have been carried out, or may be later.
    Lost(String),
}

impl Failure {
    /// As the error of a request that is no write.
    pub(crate) fn into_error(self) -> StoreError {
        let (Self::NotSent(text) | Self::Lost(text)) = self;
        let kind = match text.contains("certificate") {
            true => StoreErrorKind::Misconfigured,
            false => StoreErrorKind::Unavailable,
        };
        StoreError::new(kind, text)
    }
}

impl Transport {
    pub(crate) fn new(config: &EsConfig) -> Result<Self, StoreError> {
        let fault = |what: &str| StoreError::new(StoreErrorKind::Misconfigured, what.to_owned());
        let mut nodes = Vec::with_capacity(config.urls.len());
        for url in &config.urls {
            let mut builder = TransportBuilder::new(SingleNodeConnectionPool::new(url.clone()))
                .enable_meta_header(false);
            if !config.proxy_from_environment || is_local(url.host_str()) {
                builder = builder.disable_proxy();
            }
            builder = match &config.auth {
                EsAuth::None => builder,
                EsAuth::Basic { user, password } => {
                    builder.auth(Credentials::Basic(user.clone(), password.clone()))
                }
                EsAuth::ApiKey(key) => {
                    // The client panics on a key that is no header value.
                    if HeaderValue::try_from(key.as_str()).is_err() {
                        return Err(fault("the API key has characters that no API key has"));
                    }
                    builder.auth(Credentials::EncodedApiKey(key.clone()))
                }
            };
            if let Some(pem) = &config.certificate_authority {
                let authorities = Certificate::from_pem(pem)
                    .map_err(|_| fault("the certificate authority is not PEM of certificates"))?;
                builder = builder.cert_validation(CertificateValidation::Full(authorities));
            }
            let client = builder.build().map_err(|_| {
                fault("the HTTP client can not be built; is the certificate authority in order?")
            })?;
            let label = url.as_str().trim_end_matches('/').to_owned();
            nodes.push(Node { label, client });
        }
        Ok(Self {
            nodes,
            next: AtomicUsize::new(0),
            identity_only: !config.compression,
            request_timeout: config.request_timeout,
            admin_timeout: config.admin_timeout,
        })
    }

    /// How many nodes there are.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn timeout(&self, patience: Patience) -> Duration {
        match patience {
            Patience::Data => self.request_timeout,
            Patience::Admin => self.admin_timeout,
        }
    }

    /// How long a server may wait by itself before it answers that it can not: less than we wait
    /// for the answer, so that it can still arrive.
    pub(crate) fn server_timeout(&self, patience: Patience) -> String {
        format!("{}ms", (self.timeout(patience).as_millis() * 3 / 4).max(1))
    }

    /// Sends a request to the next node and waits for its answer.
    pub(crate) async fn send(&self, request: Request<'_>) -> Result<Answer, Failure> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        match self.send_to(first, &request).await {
            Err(Failure::NotSent(_)) if self.nodes.len() > 1 => {
                self.send_to(first.wrapping_add(1), &request).await
            }
            result => result,
        }
    }

    async fn send_to(&self, node: usize, request: &Request<'_>) -> Result<Answer, Failure> {
        let node = &self.nodes[node % self.nodes.len()];
        let started = Instant::now();
        let result = self.attempt(node, request).await;
        let took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let Request { method, path, items, .. } = request;
        match &result {
            Ok(Answer { status, .. }) => {
                tracing::debug!(node = %node.label, ?method, path, items, status, took_ms, "answered");
            }
            Err(failure) => {
                tracing::debug!(node = %node.label, ?method, path, items, took_ms, ?failure, "no answer");
            }
        }
        result
    }

    async fn attempt(&self, node: &Node, request: &Request<'_>) -> Result<Answer, Failure> {
        let mut headers = HeaderMap::new();
        if self.identity_only {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        if request.path.ends_with("_bulk") {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        }
        let query = (!request.query.is_empty()).then_some(request.query);
        let timeout = Some(self.timeout(request.patience));
        let Request { method, path, body, .. } = request;
        let sending = node.client.send(*method, path, headers, query, body.clone(), timeout);
        let answer = async {
            let response = sending.await?;
            let status = response.status_code().as_u16();
            Ok::<_, elasticsearch::Error>(Answer { status, body: response.bytes().await? })
        };
        answer.await.map_err(|error| {
            let text = format!("{}: {}", node.label, describe(&error));
            match connect_failed(&error) {
                true => Failure::NotSent(format!("{text}; nothing was sent")),
                false => Failure::Lost(text),
            }
        })
    }
}

fn is_local(host: Option<&str>) -> bool {
    let host = host.unwrap_or_default().trim_matches(['[', ']']);
    let ip = host.parse::<std::net::IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

/// Whether the connection was not even made: then nothing was sent.
fn connect_failed(error: &elasticsearch::Error) -> bool {
    let inner = error.source().and_then(|e| e.downcast_ref::<reqwest::Error>());
    // A timeout while connecting is treated as lost: it does not say how far it got.
    inner.is_some_and(|e| e.is_connect() && !e.is_timeout())
}

/// What went wrong, without the address, which the outermost errors repeat.
fn describe(error: &elasticsearch::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_not_in_the_debug_output() {
        let config = EsConfig::from_url("http://elastic:hunter2@127.0.0.1:1").unwrap();
        let transport = Transport::new(&config).unwrap();
        let printed = format!("{transport:?} {config:?}");
        assert!(!printed.contains("hunter2"), "{printed}");
        assert!(printed.contains("127.0.0.1:1"));
    }

    #[test]
    fn servers_on_this_machine_are_never_reached_by_proxy() {
        for host in ["127.0.0.1", "127.1.2.3", "[::1]", "localhost"] {
            assert!(is_local(Some(host)), "{host}");
        }
        assert!(!is_local(Some("db.example")) && !is_local(None));
    }

    #[test]
    fn wrong_material_is_refused_and_not_repeated() {
        let config = EsConfig::from_url("https://127.0.0.1:1").unwrap();
        let no_pem = Transport::new(&config.clone().with_certificate_authority("hunter2"));
        let bad_key = Transport::new(&config.with_api_key("hunter2\n"));
        for error in [no_pem.unwrap_err(), bad_key.unwrap_err()] {
            assert_eq!(error.kind, StoreErrorKind::Misconfigured);
            assert!(!error.message.contains("hunter2"), "{}", error.message);
        }
    }

    #[tokio::test]
    async fn a_closed_port_means_nothing_was_sent() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let config = EsConfig::from_url(&format!("http://u:hunter2@{address}")).unwrap();
        let transport = Transport::new(&config).unwrap();
        let Failure::NotSent(text) = transport.send(root()).await.unwrap_err() else {
            panic!("not classified as unsent")
        };
        assert!(text.contains("refused") && !text.contains("hunter2"), "{text}");
    }

    #[tokio::test]
    async fn a_connection_that_closes_or_says_nothing_is_lost() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let mut held = Vec::new();
            for n in 0.. {
                let (socket, _) = listener.accept().await.unwrap();
                if n > 0 {
                    held.push(socket);
                }
            }
        });
        let config = EsConfig::from_url(&url).unwrap();
        let config = config.with_request_timeout(Duration::from_millis(200));
        let transport = Transport::new(&config).unwrap();
        for _ in 0..2 {
            let failure = transport.send(root()).await.unwrap_err();
            assert!(matches!(failure, Failure::Lost(_)), "{failure:?}");
        }
        server.abort();
    }

    #[tokio::test]
    async fn the_next_node_is_asked_once() {
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let open = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let urls = [&closed, &open].map(|l| format!("http://{}", l.local_addr().unwrap()));
        drop(closed);
        let server = tokio::spawn(async move {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            loop {
                let (mut socket, _) = open.accept().await.unwrap();
                let mut buffer = [0; 1024];
                let _ = socket.read(&mut buffer).await;
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
                let _ = socket.write_all(answer).await;
            }
        });
        let transport = Transport::new(&EsConfig::new(urls).unwrap()).unwrap();
        for _ in 0..4 {
            assert_eq!(transport.send(root()).await.unwrap().status, 200);
        }
        server.abort();
    }

    fn root() -> Request<'static> {
        let (path, query) = ("/", &[]);
        Request { method: Method::Get, path, query, body: None, items: 0, patience: Patience::Data }
    }
}
