//! The audit log: one line for each request and each action.
//!
//! A line of a request has no ids and no contents.

use std::collections::BTreeSet;
use std::fmt::Write;

use hyper::Method;
use parking_lot::Mutex;

use crate::http::site::Peer;

/// The target of the log. The operator turns it on by this name.
const TARGET: &str = "txn_serve::audit";

/// The code of a request without an answer, because its connection ended.
///
/// The request may have had its effect.
pub(crate) const CUT: &str = "cut";

/// The maximum number of names in a line.
const MOST_NAMES: usize = 20;

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

    /// Begins an operator's action. `subject` names its object.
    pub(crate) fn begin_action(
        &self,
        action: &'static str,
        subject: String,
        reason: &str,
    ) -> RunningAction<'_> {
        // The text of the caller must not look like another line.
        let reason = reason.escape_debug().to_string();
        RunningAction { token: &self.token, action, subject, reason, result: None }
    }

    /// Writes the line of a request. `code` is that of a problem; the status of a cut request is 0.
    pub(crate) fn log(
        &self,
        peer: Option<Peer>,
        (method, path): (&Method, &str),
        (status, code): (u16, &str),
    ) {
        if !self.is_on {
            return;
        }
        let client = peer.and_then(|peer| peer.client).map(|client| client.to_string());
        let client = client.as_deref().unwrap_or("this process");
        let (names, documents) = &*self.names.lock();
        let mut collections = String::new();
        for name in names {
            let comma = if collections.is_empty() { "" } else { "," };
            // A name of the caller must not look like another line.
            let _ = write!(collections, "{comma}{}", name.escape_debug());
        }
        let method = method.as_str();
        let token = &*self.token;
        tracing::info!(target: TARGET, client, token, method, path, collections, documents, status, code);
    }
}

/// An operator's action. Its line is written at its end, or when its connection ends before.
#[derive(Debug)]
pub(crate) struct RunningAction<'a> {
    token: &'a str,
    action: &'static str,
    subject: String,
    reason: String,
    result: Option<String>,
}

impl RunningAction<'_> {
    /// Ends the action with a result.
    pub(crate) fn ended(mut self, result: impl Into<String>) {
        self.result = Some(result.into());
    }
}

impl Drop for RunningAction<'_> {
    fn drop(&mut self) {
        let Self { token, action, subject, reason, result } = self;
        let result = result.as_deref().unwrap_or(CUT);
        tracing::info!(target: TARGET, token, action, subject, reason, result);
    }
}
