//! Administrative requests: they read or change the state of the cluster.

use std::sync::Arc;

use reqwest::Method;
use serde_json::Value;
use txn_store::{StoreError, StoreErrorKind};

use crate::answers::classify;
use crate::identity::target::identity_aliases;
use crate::index::mapping;
use crate::transport::{ADMIN_ROOM, Answer, Failure, Request, RequestClass, Transport};

/// Sends administrative requests. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct AdminRequests {
    transport: Arc<Transport>,
}

/// The reason why a change of the cluster failed.
#[derive(Debug)]
pub(crate) enum Changed {
    /// A server refused the change. `kind` is the type of its error.
    Refused { kind: String, error: StoreError, answer: Answer },
    /// No answer, or an answer without a result.
    Failed(StoreError),
}

impl Changed {
    pub(crate) fn into_error(self) -> StoreError {
        let (Self::Refused { error, .. } | Self::Failed(error)) = self;
        error
    }
}

impl AdminRequests {
    pub(crate) fn new(transport: Arc<Transport>) -> Self {
        Self { transport }
    }

    /// Sends a request, and returns the answer with any status.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Answer, StoreError> {
        let body = body.map(|body| body.to_string().into());
        let class = RequestClass::Admin;
        let room = ADMIN_ROOM;
        let request = Request { method, path, query, body, items: 0, room, class };
        self.transport.send(request).await.map_err(Failure::into_error)
    }

    /// Changes the cluster state. Every node has to acknowledge the change.
    pub(crate) async fn change(
        &self,
        what: &str,
        index: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Changed> {
        let timeout = self.transport.server_timeout(RequestClass::Admin);
        let query = [("timeout", timeout.as_str()), ("master_timeout", timeout.as_str())];
        let answer = self.send(method, path, &query, body).await.map_err(Changed::Failed)?;
        if answer.status != 200 {
            let error = refused(what, index, &answer);
            let kind = classify::cause_of(&answer).map(|cause| cause.kind).unwrap_or_default();
            return Err(Changed::Refused { kind, error, answer });
        }
        let unavailable =
            |text| Changed::Failed(StoreError::new(StoreErrorKind::Unavailable, text));
        let value: Value = serde_json::from_slice(&answer.body)
            .map_err(|_| unavailable(format!("{what}: the answer cannot be read")))?;
        if value["acknowledged"] != true {
            return Err(unavailable(format!("{what}: not acknowledged by every node in time")));
        }
        Ok(value)
    }

    /// Removes secrets from a text for the log or for an answer.
    pub(crate) fn hide_secrets(&self, text: String) -> String {
        self.transport.secrets().hide(text)
    }
}

/// Returns the error of an administrative request, with the required privileges.
pub(crate) fn refused(what: &str, index: &str, answer: &Answer) -> StoreError {
    let mut error = classify::error(what, answer);
    if error.kind == StoreErrorKind::Denied {
        error.message = format!("{}; {}", error.message, privileges(index));
    }
    error
}

/// Returns the privileges that the account of a domain needs.
fn privileges(index: &str) -> String {
    format!(
        "grant the account of the domain the index privileges read, write, view_index_metadata and manage on {index}, {} and {}",
        identity_aliases(index),
        mapping::committed_alias(index),
    )
}
