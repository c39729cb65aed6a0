//! One request, one answer. Nothing is ever sent twice, but for one case: a node that refuses the
//! connection has got nothing, and the next node is asked once. Redirects are not followed: they would
//! carry documents to another place. Answers are taken up to the size that the request allows.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION};
use reqwest::{Certificate, Client, Method, Response, Url};
use txn_store::{StoreError, StoreErrorKind};

use crate::config::EsConfig;
use crate::secrets::Secrets;

/// The connections to the nodes of one cluster.
pub(crate) struct Transport {
    nodes: Vec<Node>,
    next: AtomicUsize,
    login: Option<HeaderValue>,
    pub(crate) secrets: Secrets,
    request_timeout: Duration,
    admin_timeout: Duration,
}

struct Node {
    url: Url,
    /// Scheme, host and port.
    label: String,
    client: Client,
    /// It has answered before: it speaks the protocol of its address.
    known: AtomicBool,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.nodes.iter().map(|node| &node.label)).finish()
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<_> = self.nodes.iter().map(|node| node.label.as_str()).collect();
        f.write_str(&labels.join(", "))
    }
}

/// What a request is, for the log and for the time it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestClass {
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
    /// The largest answer that is taken, in bytes.
    pub(crate) room: usize,
    pub(crate) class: RequestClass,
}

/// Room for an answer without documents.
pub(crate) const ADMIN_ROOM: usize = 16 << 20;

/// No answer is larger, unless a single document is. Reads of more are sent again in parts.
const MOST_ROOM: usize = 128 << 20;

/// Beside a document: its names, its version, or an error about it.
const BESIDE: usize = 8 << 10;

/// Room for an answer about so many documents of at most so many bytes each.
pub(crate) fn room_for(documents: usize, bytes: usize) -> usize {
    let one = bytes.saturating_add(BESIDE);
    one.saturating_mul(documents).min(MOST_ROOM).max(one).max(1 << 20)
}

/// The answer of a server, of whatever status.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

/// No answer, or none that can be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No node has got a byte of the request.
    NotSent(StoreError),
    /// The request may have been carried out, or may be later.
    Lost(StoreError),
    /// The request may have been carried out; the answer is larger than its room.
    TooLarge(StoreError),
}

impl Failure {
    pub(crate) fn into_error(self) -> StoreError {
        let (Self::NotSent(error) | Self::Lost(error) | Self::TooLarge(error)) = self;
        error
    }
}

impl Transport {
    pub(crate) fn new(config: &EsConfig) -> Result<Self, StoreError> {
        let fault = |what: &str| StoreError::new(StoreErrorKind::Misconfigured, what.to_owned());
        let authorities = match &config.certificate_authority {
            None => Vec::new(),
            Some(pem) => match Certificate::from_pem_bundle(pem) {
                Ok(authorities) if !authorities.is_empty() => authorities,
                _ => return Err(fault("the certificate authority is not PEM of certificates")),
            },
        };
        let login = match config.auth.header().map(HeaderValue::try_from) {
            None => None,
            Some(Ok(mut login)) => {
                login.set_sensitive(true);
                Some(login)
            }
            Some(Err(_)) => return Err(fault("the API key has characters that no API key has")),
        };
        let mut nodes = Vec::with_capacity(config.urls.len());
        for url in &config.urls {
            let mut builder = Client::builder()
                .user_agent(concat!("txn-es/", env!("CARGO_PKG_VERSION")))
                .redirect(reqwest::redirect::Policy::none())
                .retry(reqwest::retry::never())
                .referer(false)
                .gzip(config.compression);
            if !config.proxy_from_environment || is_local(url.host_str()) {
                builder = builder.no_proxy();
            }
            for authority in &authorities {
                builder = builder.add_root_certificate(authority.clone());
            }
            let client = builder.build().map_err(|_| {
                fault("the HTTP client cannot be built; is the certificate authority in order?")
            })?;
            let label = url.as_str().trim_end_matches('/').to_owned();
            nodes.push(Node { url: url.clone(), label, client, known: AtomicBool::new(false) });
        }
        Ok(Self {
            nodes,
            next: AtomicUsize::new(0),
            login,
            secrets: Secrets::of(&config.auth),
            request_timeout: config.request_timeout,
            admin_timeout: config.admin_timeout,
        })
    }

    /// How many nodes there are.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn timeout(&self, class: RequestClass) -> Duration {
        match class {
            RequestClass::Data => self.request_timeout,
            RequestClass::Admin => self.admin_timeout,
        }
    }

    /// How long a server may wait by itself before it answers that it cannot: less than we wait
    /// for the answer, so that it can still arrive.
    pub(crate) fn server_timeout(&self, class: RequestClass) -> String {
        format!("{}ms", (self.timeout(class).as_millis() * 3 / 4).max(1))
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
                tracing::debug!(node = %node.label, %method, path, items, status, took_ms, "answered");
            }
            Err(failure) => {
                tracing::debug!(node = %node.label, %method, path, items, took_ms, ?failure, "no answer");
            }
        }
        result
    }

    async fn attempt(&self, node: &Node, request: &Request<'_>) -> Result<Answer, Failure> {
        let mut url = node.url.clone();
        url.set_path(request.path);
        let mut sending = node
            .client
            .request(request.method.clone(), url)
            .query(request.query)
            .timeout(self.timeout(request.class))
            .header(ACCEPT, "application/json");
        if let Some(login) = &self.login {
            sending = sending.header(AUTHORIZATION, login.clone());
        }
        if let Some(body) = &request.body {
            let lines = request.path.ends_with("_bulk");
            let kind = if lines { "application/x-ndjson" } else { "application/json" };
            sending = sending.header(CONTENT_TYPE, kind).body(body.clone());
        }
        let response = sending.send().await.map_err(|error| node.failure(&error))?;
        node.known.store(true, Ordering::Relaxed);
        if response.status().is_redirection() {
            return Err(Failure::Lost(node.redirected(&response)));
        }
        let status = response.status().as_u16();
        let body = node.body(response, request.room).await?;
        Ok(Answer { status, body })
    }
}

impl Node {
    /// The body of an answer, as long as it is within its room.
    async fn body(&self, mut response: Response, room: usize) -> Result<Bytes, Failure> {
        let too_large = || {
            let text = format!(
                "{}: the answer is larger than the {room} bytes that were asked for at most",
                self.label
            );
            Failure::TooLarge(StoreError::new(StoreErrorKind::Unavailable, text))
        };
        let announced = response.content_length().unwrap_or(0);
        let announced = usize::try_from(announced).unwrap_or(usize::MAX);
        if announced > room {
            return Err(too_large());
        }
        let mut body = Vec::with_capacity(announced);
        while let Some(piece) = response.chunk().await.map_err(|error| self.failure(&error))? {
            if body.len().saturating_add(piece.len()) > room {
                return Err(too_large());
            }
            body.extend_from_slice(&piece);
        }
        Ok(body.into())
    }

    fn redirected(&self, response: &Response) -> StoreError {
        let location = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
        let to = location.and_then(|to| self.url.join(to).ok());
        // Only where it leads to: the rest of an address may hold secrets.
        let origin = to.filter(Url::has_host).map(|to| to.origin());
        let advice = match origin {
            Some(origin) if origin != self.url.origin() => {
                let origin = origin.ascii_serialization();
                format!(
                    "the server redirects to {origin}; if that is your cluster, configure this address"
                )
            }
            _ => "the server redirects elsewhere; configure the address of the cluster itself"
                .to_owned(),
        };
        let text = format!("{}: {advice} (redirects are not followed)", self.label);
        StoreError::new(StoreErrorKind::Misconfigured, text)
    }

    /// What went wrong, and whether anything was sent.
    fn failure(&self, error: &reqwest::Error) -> Failure {
        let (kind, text) = self.describe(error);
        // A timeout while connecting is treated as lost: it does not say how far it got.
        match error.is_connect() && !error.is_timeout() {
            true => {
                let text = format!("{}: {text}; nothing was sent", self.label);
                Failure::NotSent(StoreError::new(kind, text))
            }
            false => Failure::Lost(StoreError::new(kind, format!("{}: {text}", self.label))),
        }
    }

    /// In words, without the address, which the outermost errors repeat.
    fn describe(&self, error: &reqwest::Error) -> (StoreErrorKind, String) {
        use StoreErrorKind::{Misconfigured, Unavailable};
        if error.is_timeout() {
            return (Unavailable, "no answer in time".to_owned());
        }
        let mut innermost: &dyn std::error::Error = error;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        let text = innermost.to_string();
        let secure = self.url.scheme() == "https";
        if secure && text.contains("InvalidContentType") {
            let advice =
                "the server does not speak TLS there; give its address as http://host:port";
            return (Misconfigured, format!("{advice} ({text})"));
        }
        if secure && text.contains("certificate") {
            return (Misconfigured, text);
        }
        let unheard = !self.known.load(Ordering::Relaxed);
        if !secure && unheard && !error.is_connect() {
            let advice = "if the server speaks TLS there, give its address as https://host:port";
            return (Unavailable, format!("{text}; {advice}"));
        }
        (Unavailable, text)
    }
}

fn is_local(host: Option<&str>) -> bool {
    let host = host.unwrap_or_default().trim_matches(['[', ']']);
    let ip = host.parse::<std::net::IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
#[path = "transport_tests.rs"]
mod tests;
