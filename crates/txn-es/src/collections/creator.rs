//! Creates indices, and drops new indices that a template made unsuitable.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use reqwest::Method;
use serde_json::Value;
use txn_store::{CollectionSpec, StoreError};

use crate::answers::classify;
use crate::collections::creation;
use crate::collections::template_requests::TemplateRequests;
use crate::identity::target::check_length;
use crate::index::admin::{AdminRequests, Changed};
use crate::index::definition::misconfigured;
use crate::index::indices::Indices;
use crate::index::names;

/// Creates the indices of collections.
#[derive(Debug)]
pub(crate) struct Creator {
    admin: AdminRequests,
    indices: Arc<Indices>,
    templates: TemplateRequests,
    /// Index settings that the server does not know.
    unknown_settings: Mutex<BTreeSet<String>>,
}

impl Creator {
    pub(crate) fn new(admin: AdminRequests, indices: Arc<Indices>) -> Self {
        let templates = TemplateRequests::new(admin.clone());
        Self { admin, indices, templates, unknown_settings: Mutex::default() }
    }

    /// Returns the body of the request that creates a collection.
    pub(crate) fn body(&self, spec: &CollectionSpec) -> Result<Value, StoreError> {
        creation::creation(spec, &self.unknown_settings.lock())
    }

    /// Creates the index of a collection.
    ///
    /// Returns false if another process created the index at the same time.
    pub(crate) async fn create(&self, spec: &CollectionSpec) -> Result<bool, StoreError> {
        let name = &spec.name;
        if let Some(fault) = names::fault_of_new(name) {
            return Err(misconfigured(format!("{name:?} cannot be the name of an index: {fault}")));
        }
        check_length(name)?;
        let path = format!("/{}", names::segment(name));
        let what = format!("making the index {name}");
        loop {
            let unknown = self.unknown_settings.lock().clone();
            let body = creation::creation(spec, &unknown)?;
            match self.admin.change(&what, name, Method::PUT, &path, Some(&body)).await {
                Ok(_) => return Ok(true),
                Err(Changed::Refused { kind, .. })
                    if kind == "resource_already_exists_exception" =>
                {
                    return Ok(false);
                }
                Err(Changed::Refused { answer, error, .. }) => {
                    let mut more = creation::unknown_settings(&answer.body);
                    more.retain(|setting| {
                        creation::is_optional(setting) && !unknown.contains(setting)
                    });
                    if more.is_empty() {
                        return Err(self.explain(name, error, &answer.body).await);
                    }
                    // Each round leaves out at least one more setting.
                    self.unknown_settings.lock().extend(more);
                }
                Err(Changed::Failed(error)) => return Err(error),
            }
        }
    }

    /// Explains why a server creates no index, with a remedy for administrators.
    async fn explain(&self, name: &str, error: StoreError, answer: &[u8]) -> StoreError {
        let text = String::from_utf8_lossy(answer);
        if text.contains("shards open") {
            let advice = "raise cluster.max_shards_per_node, or drop unused indices";
            return StoreError { message: format!("{}; {advice}", error.message), ..error };
        }
        self.templates.blame(name, error).await
    }

    /// Drops an unsuitable index that this process has just created.
    pub(crate) async fn drop_new(&self, name: &str, error: StoreError) -> StoreError {
        let kept = match self.is_empty(name).await {
            Ok(true) => self.indices.drop_index(name).await.err().map(|error| error.message),
            Ok(false) => Some("another client has written to it already".to_owned()),
            Err(error) => Some(error.message),
        };
        match kept {
            None => error,
            Some(why) => {
                let message =
                    format!("{}; the index {name} was made and is left over: {why}", error.message);
                StoreError { message, ..error }
            }
        }
    }

    async fn is_empty(&self, name: &str) -> Result<bool, StoreError> {
        let (what, name) = (format!("counting the documents of {name}"), names::segment(name));
        let mut answer =
            self.admin.send(Method::POST, &format!("/{name}/_refresh"), &[], None).await?;
        if answer.status == 200 {
            answer = self.admin.send(Method::GET, &format!("/{name}/_count"), &[], None).await?;
        }
        if answer.status != 200 {
            return Err(classify::error(&what, &answer));
        }
        let count: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        Ok(count["count"] == 0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use serde_json::json;
    use txn_store::{Role, Store, StoreErrorKind};

    use super::*;
    use crate::fake::{Fake, Handler, ROOT};
    use crate::identity::uuid::samples::uuid;

    fn spec() -> CollectionSpec {
        let (name, role) = ("new".to_owned(), Role::Partition);
        CollectionSpec { name, role, create: true, mappings: None }
    }

    fn error(kind: &str, reason: &str) -> (u16, String) {
        let error = serde_json::json!({"error": {"type": kind, "reason": reason}, "status": 400});
        (400, error.to_string())
    }

    #[tokio::test]
    async fn limit_of_shards_is_named_by_its_setting() {
        let reason = "Validation Failed: 1: this action would add [2] shards, but this cluster currently has \
                      [1000]/[1000] maximum normal shards open;";
        let fake = Fake::new(move |_, _| error("validation_exception", reason)).await;
        let error = fake.store.open_collection(&spec()).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
        assert!(error.message.contains("cluster.max_shards_per_node"), "{error}");
    }

    #[tokio::test]
    async fn unknown_settings_stay_left_out() {
        let fake = Fake::new(|_, body| match body.contains("index.lifecycle.name") {
            true => error("illegal_argument_exception", "unknown setting [index.lifecycle.name]"),
            false => (503, String::new()),
        })
        .await;
        for _ in 0..2 {
            let error = fake.store.open_collection(&spec()).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
        }
        let made = fake.asked.lock().iter().filter(|path| path.starts_with("/new?timeout")).count();
        assert_eq!(made, 3, "it is known at the second time");
    }

    #[tokio::test]
    async fn index_without_its_alias_is_dropped_again() {
        let made = AtomicBool::new(false);
        let index = json!({"new": {"mappings": {"properties": {"state": {"type": "keyword"}}},
            "settings": {"index.uuid": uuid("nn").text()}}});
        let missing = error("index_not_found_exception", "no such index [new]").1;
        let handler: Handler = Box::new(move |path, body| match path {
            "/" => (200, ROOT.to_owned()),
            "/new?flat_settings=true" if made.load(Relaxed) => (200, index.to_string()),
            "/new?flat_settings=true" => (404, missing.clone()),
            "/new/_refresh" => (200, "{}".to_owned()),
            "/new/_count" => (200, r#"{"count":0}"#.to_owned()),
            path if path.starts_with("/_aliases") => (403, error("security_exception", "no").1),
            // A request with a body creates the index, and a request without one drops it.
            _ => {
                made.store(!body.is_empty(), Relaxed);
                (200, r#"{"acknowledged":true}"#.to_owned())
            }
        });
        let fake = Fake::serving(|config| config, handler).await;
        let error = fake.store.open_collection(&spec()).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Denied, "{error}");
        assert!(!error.message.contains("left over"), "{error}");
        let asked = fake.asked.lock().clone();
        let changes = asked.iter().filter(|path| path.starts_with("/new?timeout")).count();
        assert_eq!(changes, 2, "made and dropped: {asked:?}");
    }
}
