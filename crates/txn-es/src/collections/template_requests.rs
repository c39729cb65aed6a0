//! Asks the server for index templates and their effect.
//!
//! The effect is what the templates give a new index.

use reqwest::Method;
use serde::de::DeserializeOwned;
use serde_json::Value;
use txn_store::StoreError;

use crate::index::admin::AdminRequests;
use crate::index::names;
use crate::index::templates::{self, Composable, Legacy};

/// Reads the index templates of one cluster. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct TemplateRequests {
    admin: AdminRequests,
}

impl TemplateRequests {
    pub(crate) fn new(admin: AdminRequests) -> Self {
        Self { admin }
    }

    /// Returns the composable and the legacy templates.
    ///
    /// Empty if the account cannot read the templates, or the server does not know the kind.
    pub(crate) async fn all(&self) -> (Composable, Legacy) {
        (self.list("/_index_template").await, self.list("/_template").await)
    }

    /// Adds the applicable index template to the error.
    ///
    /// The account must be able to read the template.
    pub(crate) async fn blame(&self, name: &str, error: StoreError) -> StoreError {
        let (composable, legacy) = self.all().await;
        let message = match templates::applying(name, &composable, &legacy) {
            Some(template) => format!(
                "{}; the index template {template:?} applies to {name}: take the name out of its index_patterns, or \
                 take out of the template what is named here",
                error.message
            ),
            None => format!(
                "{}; if an index template applies to {name}, take the name out of its index_patterns (POST \
                 /_index_template/_simulate_index/{name} shows what it adds)",
                error.message
            ),
        };
        StoreError { message, ..error }
    }

    /// Returns the settings and mappings that composable templates give a new index.
    pub(crate) async fn simulated(&self, name: &str) -> Result<Option<Value>, StoreError> {
        let path = format!("/_index_template/_simulate_index/{}", names::segment(name));
        let answer = self.admin.send(Method::POST, &path, &[], None).await?;
        let simulated = (answer.status == 200).then(|| {
            let answer: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            answer["template"].clone()
        });
        Ok(simulated)
    }

    /// Returns the templates of one kind.
    async fn list<T: Default + DeserializeOwned>(&self, path: &str) -> T {
        match self.admin.send(Method::GET, path, &[], None).await {
            Ok(answer) if answer.status == 200 => {
                serde_json::from_slice(&answer.body).unwrap_or_default()
            }
            Ok(_) | Err(_) => T::default(),
        }
    }
}
