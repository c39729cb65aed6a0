//! Checks at opening that the account can read documents completely.
//!
//! A transaction writes a document back as it was read. So a field that is hidden from reads would
//! be lost.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use futures::future::join;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use txn_store::{Key, Read, StoreError, StoreErrorKind};

use crate::answers::classify;
use crate::index::definition::misconfigured;
use crate::index::mapping::Index;
use crate::index::names;
use crate::requests::reads::Reads;
use crate::transport::{ADMIN_ROOM, Failure, Request, RequestClass, Transport};

/// The maximum number of fields for which a document is searched.
const MOST_FIELDS: usize = 100;

/// The number of documents that are checked regardless of their fields.
const ANY_DOCUMENTS: usize = 10;

/// The id of an absent document.
///
/// The servers refuse its read from the primary if the account sees only parts of documents.
const PROBE: &str = "txn-is-read-whole";

#[derive(Deserialize)]
struct Answers {
    responses: Vec<Answer>,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    hits: Hits,
}

#[derive(Default, Deserialize)]
struct Hits {
    #[serde(default)]
    hits: Vec<Hit>,
}

#[derive(Deserialize)]
struct Hit {
    #[serde(rename = "_id")]
    id: String,
    #[serde(rename = "_routing")]
    routing: Option<String>,
    #[serde(rename = "_version")]
    version: Option<i64>,
    #[serde(rename = "_seq_no")]
    seq_no: Option<i64>,
}

impl Hit {
    /// Whether a client assigned the version of the document.
    ///
    /// The servers count one version per write of a document, and one sequence number per write of
    /// its shard. So a larger version came from a client.
    fn has_external_version(&self) -> bool {
        self.version.zip(self.seq_no).is_some_and(|(version, seq_no)| version > seq_no + 1)
    }
}

/// Checks that the account can read documents completely.
#[derive(Debug)]
pub(crate) struct ReadCheck {
    transport: Arc<Transport>,
    reads: Arc<Reads>,
}

impl ReadCheck {
    pub(crate) fn new(transport: Arc<Transport>, reads: Arc<Reads>) -> Self {
        Self { transport, reads }
    }

    /// Refuses an index of which the account cannot read all fields.
    ///
    /// Compares reads from a copy with reads from the primary.
    pub(crate) async fn check(&self, index: &Index) -> Result<(), StoreError> {
        let hits = self.sample(index).await?;
        if hits.iter().any(Hit::has_external_version) {
            tracing::warn!(
                index = %index.name,
                "documents have external versions (version_type: external): each lock and each commit of a transaction takes the \
                 version on, so that writes of their feeder are refused as too old (docs/existing-index.md)"
            );
        }
        let mut keys: BTreeSet<Key> = BTreeSet::from([Key::new(&*index.name, PROBE)]);
        keys.extend(hits.into_iter().map(|hit| {
            let key = Key::new(&*index.name, hit.id);
            match hit.routing {
                Some(routing) => key.routed(routing),
                None => key,
            }
        }));
        let keys: Vec<Key> = keys.into_iter().collect();
        // Boxed, because the future of two concurrent reads is large.
        let (shown, stored) =
            Box::pin(join(self.reads.get_many(&keys), self.reads.read_primary(&keys))).await;
        for (shown, stored) in shown.into_iter().zip(stored) {
            match (shown, stored) {
                (Read::Found { version, source }, Read::Found { version: same, source: whole })
                    if version == same =>
                {
                    if let Some(field) = hidden_field(&source, &whole) {
                        return Err(misconfigured(format!(
                            "reads of {} by this account leave out the field {field} (field-level security, or a proxy): a \
                             transaction would write documents back without it; grant the account all fields of the index",
                            index.name
                        )));
                    }
                }
                (_, Read::Unavailable(error)) if error.message.contains(classify::SEEN_IN_PART) => {
                    return Err(misconfigured(format!("{}: {}", index.name, error.message)));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns sample documents, at least one for each field.
    ///
    /// A field without a document has none.
    async fn sample(&self, index: &Index) -> Result<Vec<Hit>, StoreError> {
        let path = format!("/{}/_msearch", names::segment(&index.name));
        let body = searches(index.properties());
        let request = Request {
            method: Method::POST,
            path: &path,
            query: &[],
            body: Some(body.into()),
            items: MOST_FIELDS + ANY_DOCUMENTS,
            room: ADMIN_ROOM,
            class: RequestClass::Read,
        };
        let answer = self.transport.send(request).await.map_err(Failure::into_error)?;
        let what = format!("reading documents of {}", index.name);
        if answer.status != 200 {
            let error = classify::error(&what, &answer);
            // An account without the search privilege gets its error from a request that needs it.
            return if error.kind == StoreErrorKind::Unavailable {
                Err(error)
            } else {
                Ok(Vec::new())
            };
        }
        let answers: Answers = serde_json::from_slice(&answer.body).map_err(|e| {
            let text = format!("{what}: the answer cannot be read, at byte {}", e.column());
            StoreError::new(StoreErrorKind::Unavailable, text)
        })?;
        Ok(answers.responses.into_iter().flat_map(|answer| answer.hits.hits).collect())
    }
}

/// Returns the body of the request.
fn searches(properties: Option<&Map<String, Value>>) -> String {
    let mut paths = Vec::new();
    if let Some(properties) = properties {
        collect_fields(properties, "", &mut paths);
    }
    let mut body = String::new();
    let mut add = |query: Value, size: usize| {
        let search = json!({
            "query": query, "size": size, "_source": false, "version": true, "seq_no_primary_term": true,
        });
        // Writing to a `String` does not fail.
        let _ = write!(body, "{{}}\n{search}\n");
    };
    add(json!({"match_all": {}}), ANY_DOCUMENTS);
    for path in paths {
        add(json!({"exists": {"field": path}}), 1);
    }
    body
}

fn collect_fields(properties: &Map<String, Value>, above: &str, paths: &mut Vec<String>) {
    for (name, mapping) in properties {
        if paths.len() >= MOST_FIELDS {
            return;
        }
        let path = if above.is_empty() { name.clone() } else { format!("{above}.{name}") };
        match mapping["properties"].as_object() {
            Some(below) => collect_fields(below, &path, paths),
            None => paths.push(path),
        }
    }
}

/// Returns the first field path that a read hides or changes.
fn hidden_field(shown: &str, stored: &str) -> Option<String> {
    let parsed = |text| serde_json::from_str::<Value>(text).ok();
    difference(&parsed(shown)?, &parsed(stored)?)
}

fn difference(shown: &Value, stored: &Value) -> Option<String> {
    if shown == stored {
        return None;
    }
    let (Value::Object(shown), Value::Object(stored)) = (shown, stored) else {
        return Some(String::new());
    };
    stored.iter().find_map(|(name, value)| {
        let below = difference(shown.get(name).unwrap_or(&Value::Null), value)?;
        Some(if below.is_empty() { name.clone() } else { format!("{name}.{below}") })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_field_is_named() {
        let stored = r#"{"a":1,"o":{"x":1,"y":[1,2]},"n":null}"#;
        for (shown, field) in [
            (stored, None),
            (r#"{"o":{"x":1,"y":[1,2]},"n":null,"a":1}"#, None),
            (r#"{"a":1,"n":null}"#, Some("o")),
            (r#"{"a":1,"o":{"y":[1,2]},"n":null}"#, Some("o.x")),
            (r#"{"a":1,"o":{"x":1,"y":[1]},"n":null}"#, Some("o.y")),
            (r#"{"a":"***","o":{"x":1,"y":[1,2]},"n":null}"#, Some("a")),
        ] {
            assert_eq!(hidden_field(shown, stored).as_deref(), field, "{shown}");
        }
    }

    #[test]
    fn each_field_is_searched() {
        let properties =
            json!({"a": {"type": "keyword"}, "o": {"properties": {"x": {"type": "long"}}}});
        let body = searches(properties.as_object());
        assert_eq!(body.lines().count(), 6, "{body}");
        assert!(body.contains(r#""exists":{"field":"o.x"}"#) && body.ends_with('\n'), "{body}");
        let many: Map<String, Value> =
            (0..2 * MOST_FIELDS).map(|n| (format!("f{n}"), json!({"type": "long"}))).collect();
        assert_eq!(searches(Some(&many)).lines().count(), 2 * (MOST_FIELDS + 1));
    }

    #[test]
    fn external_versions_exceed_the_number_of_writes() {
        let is_external = |version, seq_no| {
            let (id, routing) = ("1".to_owned(), None);
            Hit { id, routing, version: Some(version), seq_no: Some(seq_no) }.has_external_version()
        };
        assert!(is_external(1_795_285_196_222, 7));
        assert!(!is_external(1, 0) && !is_external(8, 7) && !is_external(1, 7));
    }
}
