//! The transport: one request, one answer.
//!
//! No write is sent twice. A write goes to another node only if the previous node received nothing.
//! A read goes to another node, or takes a new connection, if no answer comes. Redirects are not
//! followed, because they would carry documents to another server. Answers are read up to the size
//! that the request allows.

mod authentication;
mod connections;
mod delivery;
mod driver;
mod health;
mod node;
mod tls;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::Method;
use reqwest::header::HeaderMap;
use txn_store::{StoreError, StoreErrorKind};

use crate::config::EsConfig;
use crate::secrets::Secrets;
use authentication::Authentication;
use connections::Connections;
use delivery::Nodes;
use driver::Driver;
use node::Node;

/// The connections to the nodes of one cluster.
pub(crate) struct Transport {
    nodes: Arc<Nodes>,
    driver: Driver,
    secrets: Secrets,
    request_timeout: Duration,
    admin_timeout: Duration,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.nodes.labels()).finish()
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.nodes.labels().collect::<Vec<_>>().join(", "))
    }
}

/// Counts the bytes of an answer while they arrive. The result says whether so many more bytes may
/// be kept.
pub type AnswerMeter = Arc<dyn Fn(usize) -> bool + Send + Sync>;

/// The class of a request: its timeout, and whether it is repeatable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestClass {
    /// Changes nothing. May be sent a second time if no answer comes.
    Read,
    /// Writes documents.
    Write,
    /// Changes or reads the cluster state: every node has to agree.
    Admin,
}

/// One request.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: Method,
    /// The path. Its names are already escaped.
    pub(crate) path: &'a str,
    pub(crate) query: &'a [(&'a str, &'a str)],
    pub(crate) body: Option<Bytes>,
    /// The number of documents in the request.
    pub(crate) items: usize,
    /// The largest accepted answer, in bytes.
    pub(crate) room: usize,
    pub(crate) class: RequestClass,
}

/// The largest answer without documents, in bytes.
pub(crate) const ADMIN_ROOM: usize = 16 << 20;

/// The largest answer with several documents, in bytes. Larger reads are repeated in parts.
const MOST_ROOM: usize = 128 << 20;

/// The size of names, version or error in an answer, in bytes.
const BESIDE: usize = 8 << 10;

/// Returns the answer limit for this many documents.
///
/// Each document has at most `bytes`.
pub(crate) fn room_for(documents: usize, bytes: usize) -> usize {
    let one = bytes.saturating_add(BESIDE);
    one.saturating_mul(documents).min(MOST_ROOM).max(one).max(1 << 20)
}

/// The answer of a server, with any status.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// No answer, or one that cannot be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No node has received a byte of the request.
    NotSent(StoreError),
    /// The outcome is unknown. The request may have been carried out, or may be carried out later.
    Lost(StoreError),
    /// The request may have been carried out. The answer exceeds the limit.
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
        let secrets = Secrets::default();
        let authentication = Authentication::new(config, secrets.clone())?;
        let connections = Connections::new(config)?;
        let nodes = config.urls.iter().map(|url| Node::new(url.clone(), connections.clone()));
        let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            nodes: Arc::new(Nodes::new(nodes, authentication, config.request_timeout)),
            driver: Driver::new()?,
            secrets,
            request_timeout: config.request_timeout,
            admin_timeout: config.admin_timeout,
        })
    }

    /// Returns the secrets that no error and no log may contain.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Returns the number of nodes.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.labels().len()
    }

    /// The number of nodes that requests avoid now.
    pub(crate) fn nodes_left_out(&self) -> usize {
        self.nodes.left_out()
    }

    pub(crate) fn timeout(&self, class: RequestClass) -> Duration {
        match class {
            RequestClass::Read | RequestClass::Write => self.request_timeout,
            RequestClass::Admin => self.admin_timeout,
        }
    }

    /// Returns the time after which a server answers with a failure.
    ///
    /// This time is shorter than the store's own timeout, so that the answer can still arrive.
    pub(crate) fn server_timeout(&self, class: RequestClass) -> String {
        format!("{}ms", (self.timeout(class).as_millis() * 3 / 4).max(1))
    }

    /// Sends a request and waits for its answer, within its class's timeout.
    pub(crate) async fn send(&self, request: Request<'_>) -> Result<Answer, Failure> {
        let timeout = self.timeout(request.class);
        let delivery = self.nodes.clone().deliver(&request, timeout);
        self.driver.run(delivery).await.unwrap_or_else(|driver::Panicked| Err(panicked()))
    }

    /// Sends a request of another program once, with its headers.
    ///
    /// Waits for the answer.
    pub(crate) async fn forward(
        &self,
        request: Request<'_>,
        headers: HeaderMap,
        meter: Option<AnswerMeter>,
    ) -> Result<Answer, Failure> {
        let timeout = self.timeout(request.class);
        let delivery = self.nodes.clone().forward(&request, headers, meter, timeout);
        self.driver.run(delivery).await.unwrap_or_else(|driver::Panicked| Err(panicked()))
    }
}

fn panicked() -> Failure {
    let text = "a task of the store panicked";
    Failure::Lost(StoreError::new(StoreErrorKind::Unavailable, text))
}

#[cfg(test)]
mod tests;
