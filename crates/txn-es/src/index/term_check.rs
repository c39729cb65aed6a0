//! Asks the server for the length of the terms of a text.

use std::sync::Arc;

use reqwest::Method;
use serde::Deserialize;
use serde_json::json;
use txn_store::{Outcome, Refusal, RefusalKind, StoreError, StoreErrorKind};

use crate::answers::classify;
use crate::index::admin::{AdminRequests, refused};
use crate::index::indices::Indices;
use crate::index::names;
use crate::index::terms::{LONGEST, LongValue, Measure, windows};

#[derive(Deserialize)]
struct Analysis {
    #[serde(default)]
    tokens: Vec<Token>,
}

#[derive(Deserialize)]
struct Token {
    token: String,
}

/// The terms that the analyzer of a field makes of a text.
enum Terms {
    /// No term is too long, or the field has no terms.
    Fit,
    Immense,
    /// More terms than the server lists.
    Many,
}

/// Finds terms that are too long, which some servers' dry runs accept.
#[derive(Debug)]
pub(crate) struct TermCheck {
    admin: AdminRequests,
    indices: Arc<Indices>,
    is_opensearch: bool,
}

impl TermCheck {
    pub(crate) fn new(admin: AdminRequests, indices: Arc<Indices>, is_opensearch: bool) -> Self {
        Self { admin, indices, is_opensearch }
    }

    /// Checks a document that passed the dry run of its write.
    ///
    /// The write would refuse a text that becomes one term that is too long. Only a document that
    /// is long enough to hold such a term costs a read of the mapping, which may have grown. Only a
    /// long text in a field with its own analyzer is analyzed.
    pub(crate) async fn check(&self, collection: &str, source: &str) -> Outcome {
        if source.len() <= LONGEST {
            return Outcome::Holds;
        }
        let index = match self.indices.look(collection).await {
            Ok(Some(index)) => index,
            Ok(None) => return Outcome::MissingCollection,
            Err(error) => return Outcome::Rejected(error.message),
        };
        for value in index.long_values(source, self.is_opensearch) {
            let is_immense = match value.measure {
                Measure::OneTerm => Ok(true),
                Measure::Analyzed => self.is_immense(&index.name, &value).await,
            };
            match is_immense {
                Ok(false) => {}
                Ok(true) => {
                    let field = value.field;
                    let reason = format!(
                        "the field {field} is indexed as one term, which may have {LONGEST} bytes at most"
                    );
                    return Outcome::Invalid(Refusal { kind: RefusalKind::Document, reason });
                }
                Err(error) if error.kind == StoreErrorKind::Denied => {
                    let reason = error.message;
                    return Outcome::Invalid(Refusal { kind: RefusalKind::Denied, reason });
                }
                Err(error) => return Outcome::Rejected(error.message),
            }
        }
        Outcome::Holds
    }

    async fn is_immense(&self, index: &str, value: &LongValue) -> Result<bool, StoreError> {
        match self.terms(index, &value.field, &value.text).await? {
            Terms::Fit => return Ok(false),
            Terms::Immense => return Ok(true),
            Terms::Many => {}
        }
        // A piece with so many terms is unlikely to have one that is longer than half of the piece.
        for piece in windows(&value.text) {
            if let Terms::Immense = self.terms(index, &value.field, piece).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn terms(&self, index: &str, field: &str, text: &str) -> Result<Terms, StoreError> {
        let what = format!("analyzing a text of the field {field} of {index}");
        let path = format!("/{}/_analyze", names::segment(index));
        let body = json!({"field": field, "text": text});
        let query = [("filter_path", "tokens.token")];
        let answer = self.admin.send(Method::POST, &path, &query, Some(&body)).await?;
        if answer.status == 200 {
            let analysis: Analysis = serde_json::from_slice(&answer.body).map_err(|e| {
                let text = format!("{what}: the answer cannot be read, at byte {}", e.column());
                StoreError::new(StoreErrorKind::Unavailable, text)
            })?;
            let is_immense = analysis.tokens.iter().any(|token| token.token.len() > LONGEST);
            return Ok(if is_immense { Terms::Immense } else { Terms::Fit });
        }
        let error = refused(&what, index, &answer);
        let reason = classify::cause_of(&answer).and_then(|cause| cause.reason).unwrap_or_default();
        match error.kind {
            _ if reason.contains("exceeded the allowed maximum") => Ok(Terms::Many),
            // A field without an analyzer.
            StoreErrorKind::Misconfigured if answer.status == 400 => Ok(Terms::Fit),
            _ => Err(error),
        }
    }
}
