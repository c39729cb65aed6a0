//! The audit log: one line for each request and each action.
//!
//! A line of a request has no ids and no contents.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::SocketAddr;

use hyper::StatusCode;
use hyper::http::request::Parts;
use parking_lot::Mutex;

/// The target of the log. The operator turns it on by this name.
const TARGET: &str = "txn_serve::audit";

/// The maximum number of names in a line.
const MOST_NAMES: usize = 20;

/// The address of a client, as an extension of its request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client(pub(crate) SocketAddr);

/// The collections and the number of documents that a request names.
#[derive(Debug)]
pub(crate) struct Named {
    is_on: bool,
    /// The name of the token.
    token: String,
    names: Mutex<(BTreeSet<String>, usize)>,
}

impl Named {
    pub(crate) fn new(token: Option<&str>) -> Self {
        let is_on = tracing::enabled!(target: TARGET, tracing::Level::INFO);
        let token = token.unwrap_or_default().to_owned();
        Self { is_on, token, names: Mutex::default() }
    }

    /// Notes a collection or an index.
    pub(crate) fn collection(&self, name: &str) {
        self.documents(name, 0);
    }

    /// Notes documents of a collection.
    pub(crate) fn documents(&self, name: &str, count: usize) {
        if self.is_on {
            let mut names = self.names.lock();
            names.1 = names.1.saturating_add(count);
            if names.0.len() < MOST_NAMES {
                names.0.insert(name.to_owned());
            }
        }
    }

    /// Writes the line of an operator's action. `subject` names its object.
    pub(crate) fn log_action(&self, action: &str, subject: &str, reason: &str, result: &str) {
        let token = &*self.token;
        // The text of the caller must not look like another line.
        let reason = reason.escape_debug().to_string();
        tracing::info!(target: TARGET, token, action, subject, reason, result);
    }

    /// Writes the line of an answered request. `code` is that of a problem.
    pub(crate) fn log(&self, parts: &Parts, path: &str, status: StatusCode, code: &str) {
        if !self.is_on {
            return;
        }
        let client = parts.extensions.get::<Client>().map(|client| client.0.ip().to_string());
        let client = client.as_deref().unwrap_or("this process");
        let (names, documents) = &*self.names.lock();
        let mut collections = String::new();
        for name in names {
            let comma = if collections.is_empty() { "" } else { "," };
            // A name of the caller must not look like another line.
            let _ = write!(collections, "{comma}{}", name.escape_debug());
        }
        let (method, status) = (parts.method.as_str(), status.as_u16());
        let token = &*self.token;
        tracing::info!(target: TARGET, client, token, method, path, collections, documents, status, code);
    }
}
