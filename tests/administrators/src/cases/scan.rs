//! By-query jobs, or a plain client with the same effect.
//!
//! On a server without such jobs, a plain client scans and writes with conditions.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::send;
use crate::stage::Stage;

/// The name by which the job reaches the documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Through {
    Index,
    /// The alias that hides placeholders.
    Committed,
}

impl Through {
    pub(super) fn name(self, index: &str) -> String {
        match self {
            Self::Index => index.to_owned(),
            Self::Committed => format!("{index}-committed"),
        }
    }
}

/// The change of each document that the query finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Writes the document back unchanged.
    Rewrite,
    /// Writes the document back with a further field.
    AddField,
    Delete,
}

/// Runs the job once on all documents of a query.
///
/// The query runs after a refresh.
///
/// Documents that change in the meantime are skipped.
pub(super) async fn once(
    stage: &Stage,
    name: &str,
    query: &Value,
    change: Change,
) -> Result<(), String> {
    send(stage.plain(), "POST", &format!("/{name}/_refresh"), None).await?;
    if stage.server.has_by_query() {
        return by_query(stage, name, query, change).await;
    }
    by_client(stage, name, query, change).await
}

async fn by_query(stage: &Stage, name: &str, query: &Value, change: Change) -> Result<(), String> {
    let mut body = json!({"query": query});
    if change == Change::AddField {
        body["script"] = json!({"source": "ctx._source.touched = true"});
    }
    let api = if change == Change::Delete { "_delete_by_query" } else { "_update_by_query" };
    let path = format!("/{name}/{api}?conflicts=proceed");
    let answer = send(stage.plain(), "POST", &path, Some(body)).await?;
    match answer["failures"].as_array() {
        Some(failures) if failures.is_empty() => Ok(()),
        _ => Err(format!("{path}: {answer}")),
    }
}

async fn by_client(stage: &Stage, name: &str, query: &Value, change: Change) -> Result<(), String> {
    let body = json!({"size": 1_000, "seq_no_primary_term": true, "query": query});
    let page = send(stage.plain(), "POST", &format!("/{name}/_search"), Some(body)).await?;
    let mut lines = String::new();
    for hit in page["hits"]["hits"].as_array().into_iter().flatten() {
        let about = json!({
            "_index": hit["_index"], "_id": hit["_id"],
            "if_seq_no": hit["_seq_no"], "if_primary_term": hit["_primary_term"],
        });
        let mut source = hit["_source"].clone();
        if change == Change::AddField {
            source["touched"] = json!(true);
        }
        let _ = match change {
            Change::Delete => writeln!(lines, "{}", json!({"delete": about})),
            _ => writeln!(lines, "{}\n{source}", json!({"index": about})),
        };
    }
    if lines.is_empty() {
        return Ok(());
    }
    let (status, text) = stage.plain().text("POST", "/_bulk", Some(lines)).await;
    let answer: Value = serde_json::from_str(&text).unwrap_or_default();
    let items = answer["items"].as_array().into_iter().flatten();
    let mut statuses =
        items.filter_map(|item| item.as_object()?.values().next()?["status"].as_u64());
    // In the meantime the document was changed (409) or deleted (404).
    match status {
        200 if statuses.all(|status| matches!(status, 200 | 201 | 404 | 409)) => Ok(()),
        _ => Err(format!("_bulk: {status} {text}")),
    }
}
