//! One node: its address, its connections, and its answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use reqwest::header::LOCATION;
use reqwest::{Client, Response, Url};
use tokio::sync::Notify;
use txn_store::{StoreError, StoreErrorKind};

use super::connections::Connections;
use super::health::Health;
use super::{Answer, AnswerMeter, Failure};

pub(super) struct Node {
    pub(super) url: Url,
    /// Scheme, host and port.
    pub(super) label: String,
    pub(super) health: Mutex<Health>,
    pub(super) probe_failed: Notify,
    connections: Connections,
    pooled: RwLock<Client>,
    fresh: Client,
    /// Whether the node has answered before. Such a node speaks the protocol of its address.
    known: AtomicBool,
}

/// The connection of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connection {
    /// An idle open connection, if there is one.
    Pooled,
    /// A new connection, which is closed after the answer.
    New,
}

/// The room of an answer.
#[derive(Clone, Copy)]
pub(super) struct Room<'a> {
    /// The largest accepted answer.
    pub(super) bytes: usize,
    pub(super) meter: Option<&'a AnswerMeter>,
}

impl Node {
    pub(super) fn new(url: Url, connections: Connections) -> Result<Self, StoreError> {
        let origin = url.origin().ascii_serialization();
        let pooled = RwLock::new(connections.pooled(&url)?);
        let fresh = connections.unpooled(&url)?;
        let health = Mutex::new(Health::new(Instant::now()));
        let known = AtomicBool::new(false);
        let probe_failed = Notify::new();
        Ok(Self { url, label: origin, health, probe_failed, connections, pooled, fresh, known })
    }

    /// Replaces the pooled connections. Running requests keep the old ones.
    pub(super) fn renew_connections(&self) {
        match self.connections.pooled(&self.url) {
            Ok(client) => *self.pooled.write() = client,
            Err(error) => tracing::warn!(node = %self.label, %error, "connections are not renewed"),
        }
    }

    /// Sends a request, and reads its answer up to the limit.
    pub(super) async fn carry(
        &self,
        request: reqwest::Request,
        connection: Connection,
        room: Room<'_>,
    ) -> Result<Answer, Failure> {
        let client = match connection {
            Connection::Pooled => self.pooled.read().clone(),
            Connection::New => self.fresh.clone(),
        };
        let mut response = client.execute(request).await.map_err(|error| self.failure(&error))?;
        self.known.store(true, Ordering::Relaxed);
        self.health.lock().hear(Instant::now());
        if response.status().is_redirection() {
            return Err(Failure::Lost(self.redirected(&response)));
        }
        let status = response.status().as_u16();
        let headers = std::mem::take(response.headers_mut());
        let body = self.body(response, room).await?;
        Ok(Answer { status, headers, body })
    }

    /// Reads the body of an answer up to the limit.
    async fn body(&self, mut response: Response, room: Room<'_>) -> Result<Bytes, Failure> {
        let Room { bytes, meter } = room;
        let too_large = || {
            let text =
                format!("{}: the answer is larger than the limit of {bytes} bytes", self.label);
            Failure::TooLarge(StoreError::new(StoreErrorKind::Unavailable, text))
        };
        let announced = response.content_length().unwrap_or(0);
        let announced = usize::try_from(announced).unwrap_or(usize::MAX);
        let grants = |more: usize| more == 0 || meter.is_none_or(|meter| meter(more));
        if announced > bytes || !grants(announced) {
            return Err(too_large());
        }
        let mut granted = announced;
        let mut body = Vec::with_capacity(announced);
        while let Some(piece) = response.chunk().await.map_err(|error| self.failure(&error))? {
            self.health.lock().hear(Instant::now());
            let length = body.len().saturating_add(piece.len());
            if length > bytes || !grants(length.saturating_sub(granted)) {
                return Err(too_large());
            }
            granted = granted.max(length);
            body.extend_from_slice(&piece);
        }
        Ok(body.into())
    }

    fn redirected(&self, response: &Response) -> StoreError {
        let location = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
        let to = location.and_then(|to| self.url.join(to).ok());
        // Only the origin of the target, because the rest of an address may hold secrets.
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

    pub(super) fn no_answer(&self, waited: Duration) -> Failure {
        let text = format!("{}: no answer in time ({waited:?})", self.label);
        Failure::Lost(StoreError::new(StoreErrorKind::Unavailable, text))
    }

    /// Classifies an error, and whether anything was sent.
    fn failure(&self, error: &reqwest::Error) -> Failure {
        let (kind, text) = self.describe(error);
        // The client writes a request only after the connection is made, with TLS and the tunnel of
        // a proxy.
        match error.is_connect() {
            true => {
                let text = format!("{}: {text}; nothing was sent", self.label);
                Failure::NotSent(StoreError::new(kind, text))
            }
            false => Failure::Lost(StoreError::new(kind, format!("{}: {text}", self.label))),
        }
    }

    /// Describes the error without the address, which the outermost errors repeat.
    fn describe(&self, error: &reqwest::Error) -> (StoreErrorKind, String) {
        use StoreErrorKind::{Misconfigured, Unavailable};
        if error.is_connect() && error.is_timeout() {
            return (Unavailable, "no connection in time".to_owned());
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
