//! The contents of the indices, from plain reads at rest.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use txn_fixtures::plain_client::PlainClient;

use crate::book::{Document, Role};

/// The fields that the library adds to documents.
///
/// Written out here, because the documentation promises them.
const LOCK: &str = "transaction_tid";
const PLACEHOLDER: &str = "transaction_absent";

/// The number of documents in one page of a search.
const PAGE: usize = 2_000;

/// One document as a plain client sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Source(Value);

impl Source {
    #[must_use]
    pub(crate) fn new(source: Value) -> Self {
        Self(source)
    }

    /// Whether a transaction has locked the document.
    #[must_use]
    pub(crate) fn is_locked(&self) -> bool {
        self.0.get(LOCK).is_some_and(|lock| !lock.is_null())
    }

    /// Whether the document is a placeholder for an absent one.
    #[must_use]
    pub(crate) fn is_placeholder(&self) -> bool {
        self.0[PLACEHOLDER] == json!(true)
    }

    /// Returns a field of the application.
    #[must_use]
    pub(crate) fn field(&self, name: &str) -> &Value {
        &self.0[name]
    }
}

/// All documents of the load's indices.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Found {
    pub(crate) documents: BTreeMap<Document, Source>,
}

impl Found {
    /// Reads the indices of the two collections by searches, after a refresh.
    ///
    /// # Panics
    /// If the server does not answer.
    pub(crate) async fn read(plain: &PlainClient, accounts: &str, entries: &str) -> Self {
        let mut found = Self::default();
        for (role, index) in [(Role::Accounts, accounts), (Role::Entries, entries)] {
            for (id, source) in all(plain, index).await {
                found.documents.insert((role, id), Source::new(source));
            }
        }
        found
    }

    /// Returns a document of the application, and no placeholder.
    #[must_use]
    pub(crate) fn visible(&self, role: Role, id: &str) -> Option<&Source> {
        let source = self.documents.get(&(role, id.to_owned()));
        source.filter(|source| !source.is_placeholder())
    }
}

/// Returns all documents of an index with their ids.
///
/// Searches the index after a refresh.
///
/// # Panics
/// If the server does not answer.
pub(crate) async fn all(plain: &PlainClient, index: &str) -> Vec<(String, Value)> {
    plain.ok("POST", &format!("/{index}/_refresh"), None).await;
    let body = json!({"size": PAGE, "query": {"match_all": {}}, "sort": ["_doc"]});
    let path = format!("/{index}/_search?scroll=1m");
    let mut page = plain.ok("POST", &path, Some(body.to_string())).await;
    let mut documents = Vec::new();
    loop {
        let scroll = page["_scroll_id"].clone();
        let Some(hits) = page["hits"]["hits"].as_array().filter(|hits| !hits.is_empty()) else {
            let body = json!({"scroll_id": scroll}).to_string();
            plain.text("DELETE", "/_search/scroll", Some(body)).await;
            return documents;
        };
        documents.extend(hits.iter().map(|hit| {
            let id = hit["_id"].as_str().unwrap_or_default().to_owned();
            (id, hit["_source"].clone())
        }));
        let body = json!({"scroll": "1m", "scroll_id": scroll}).to_string();
        page = plain.ok("POST", "/_search/scroll", Some(body)).await;
    }
}
