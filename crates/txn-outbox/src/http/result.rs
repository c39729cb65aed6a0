//! The results of requests, by event id.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
#[cfg(feature = "http")]
use txn_core::Transaction;
use txn_core::scan::{PAGE, candidates};
use txn_core::store::Filter;
use txn_core::{Collection, Domain};
use txn_lock::stored::{Format, Stored, Versioned};

use crate::error::{OutboxError, Result};
use crate::http::request::Method;
use crate::queue::model::known;

/// The newest format of results.
const NEWEST: u32 = 1;

/// The number of results per queue.
///
/// The id of a result's document depends on this number, so it must never change.
const RESULTS_PER_QUEUE: u64 = 64;

/// Field mappings, for stores with mappings.
const MAPPINGS: &str = r#"{"dynamic":"strict","properties":{
    "format":{"type":"integer"},"id":{"type":"keyword"},"idempotency_key":{"type":"keyword"},
    "method":{"type":"keyword"},"to":{"type":"keyword"},"state":{"type":"keyword"},
    "status":{"type":"integer"},"attempts":{"type":"integer"},
    "at_ms":{"type":"date","format":"epoch_millis"},"first_ms":{"type":"date","format":"epoch_millis"},"error":{"type":"text","index":false},
    "headers":{"type":"object","enabled":false},"body":{"type":"text","index":false}}}"#;

/// The stored result of the last call of a request.
///
/// `Debug` shows nothing of the answer.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HttpResult {
    pub(crate) format: Format<NEWEST>,
    /// The event id.
    pub id: String,
    /// The header `Idempotency-Key` of the request.
    pub idempotency_key: String,
    /// The method of the request.
    pub method: Method,
    /// The origin of the URL: scheme, host and port.
    pub to: String,
    /// The state of the request.
    pub state: HttpState,
    /// The status of the answer, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The number of noted calls. A process that dies leaves no note.
    pub attempts: u32,
    /// The time of the note, in milliseconds since the Unix epoch.
    ///
    /// The wall clock of the calling process supplies the time.
    pub at_ms: u64,
    /// The time of the first noted call, or 0 if unknown.
    ///
    /// For a resent dead letter, the time of the first call since the resend.
    #[serde(default)]
    pub first_ms: u64,
    /// The reason why the request is not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The stored headers of the answer.
    pub headers: BTreeMap<String, String>,
    /// The beginning of the answer's body, if stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

impl fmt::Debug for HttpResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpResult")
            .field("id", &self.id)
            .field("to", &self.to)
            .field("state", &self.state)
            .field("status", &self.status)
            .field("attempts", &self.attempts)
            .field("at_ms", &self.at_ms)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

/// The state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HttpState {
    /// The answer was 2xx.
    Done,
    /// The last call failed. The request is retried, or is a dead letter.
    Failed,
    /// The request can never succeed, or is not allowed: a dead letter.
    Refused,
}

type Documents = Versioned<HttpResult, NEWEST>;

/// The results of a domain, in the collection `<domain>-http-results`.
///
/// Each queue keeps its newest 64 results, and overwrites older ones. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HttpResults {
    domain: Domain,
    results: Collection<Documents>,
}

impl HttpResults {
    /// Opens the results of a domain.
    ///
    /// # Errors
    /// An error of the engine.
    pub async fn open(domain: &Domain) -> Result<Self> {
        let results = domain.create_system_collection(&collection(domain), MAPPINGS).await?;
        Ok(Self { domain: domain.clone(), results })
    }

    /// Returns the result of a request.
    ///
    /// `id` is the event id from
    /// [`HttpRequests::after_commit`](crate::http::HttpRequests::after_commit). Returns `None`
    /// before the first call, if newer results overwrote it, or if the result could not be written.
    ///
    /// # Errors
    /// [`OutboxError::NewerFormat`](crate::OutboxError::NewerFormat), or an error of the engine.
    pub async fn get(&self, id: &str) -> Result<Option<HttpResult>> {
        let Some(document) = document_id(id) else { return Ok(None) };
        let found = self.domain.reader().verified().get(&self.results, &document).await?;
        let found = found.map(|found| known(&document, found)).transpose()?;
        Ok(found.filter(|found| found.id == id))
    }

    /// Deletes results noted at or before this time. Returns their number.
    async fn purge(&self, before: u64) -> Result<usize> {
        let ids = candidates(&self.domain, self.results.name(), Filter::All, usize::MAX).await?;
        let ids: Vec<_> = ids.into_iter().collect();
        let is_old = |found: &Stored<HttpResult>| match found {
            Stored::Known(result) => result.at_ms <= before,
            Stored::Newer(_) => false,
        };
        let mut purged = 0;
        for ids in ids.chunks(PAGE) {
            let found = self.domain.reader().get_many(&self.results, ids).await?;
            for (id, _) in
                ids.iter().zip(found).filter(|(_, found)| found.as_ref().is_some_and(is_old))
            {
                let deleted = self.domain.transact(async |tx| {
                    let is_old = tx.get(&self.results, id).await?.as_ref().is_some_and(is_old);
                    if is_old {
                        tx.delete(&self.results, id)?;
                    }
                    Ok::<_, OutboxError>(is_old)
                });
                purged += usize::from(deleted.await?);
            }
        }
        Ok(purged)
    }

    /// The time of the first call of a failed request.
    ///
    /// `None` if the time is unknown.
    #[cfg(feature = "http")]
    pub(crate) async fn first_ms(&self, id: &str) -> Result<Option<u64>> {
        let found = self.get(id).await?.filter(|found| found.state == HttpState::Failed);
        Ok(found.map(|found| found.first_ms).filter(|first| *first > 0))
    }

    /// Stores a result, with the number of calls. Results of a newer format stay.
    #[cfg(feature = "http")]
    pub(crate) async fn record(&self, tx: &Transaction, result: &HttpResult) -> Result<()> {
        let Some(document) = document_id(&result.id) else { return Ok(()) };
        let before = match tx.get(&self.results, &document).await? {
            Some(Stored::Newer(_)) => return Ok(()),
            Some(Stored::Known(found)) if found.id == result.id => found.attempts,
            _ => 0,
        };
        let result = HttpResult { attempts: before.saturating_add(1), ..result.clone() };
        Ok(tx.put(&self.results, document, &Stored::Known(result))?)
    }
}

/// Deletes results noted at or before this time. Returns their number.
///
/// A domain without results has no collection to delete from.
pub(crate) async fn purge(domain: &Domain, before: u64) -> Result<usize> {
    let name = collection(domain);
    let found = domain.store().list_collections(&name).await?;
    match found.iter().any(|found| **found == *name) {
        true => HttpResults::open(domain).await?.purge(before).await,
        false => Ok(0),
    }
}

/// The name of the collection with the results of a domain.
fn collection(domain: &Domain) -> String {
    domain.collection_name("http-results")
}

/// The document id of a result. The ids of a queue repeat after [`RESULTS_PER_QUEUE`] results.
fn document_id(event_id: &str) -> Option<String> {
    let mut parts = event_id.splitn(3, '/');
    let (topic, sequence, key) = (parts.next()?, parts.next()?, parts.next()?);
    let sequence: u64 = sequence.parse().ok()?;
    Some(format!("{topic}/{}/{key}", sequence % RESULTS_PER_QUEUE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_ids_repeat_and_mappings_cover_all_fields() {
        let of = |id: &str| document_id(id).unwrap_or_default();
        assert_eq!(of("http-requests/7/a/b"), of("http-requests/71/a/b"));
        assert_ne!(of("http-requests/7/a"), of("http-requests/8/a"));
        assert_eq!((document_id("x"), document_id("x/y/z")), (None, None));
        let full = HttpResult {
            format: Format,
            id: "a/1/b".to_owned(),
            idempotency_key: "k".to_owned(),
            method: Method::Post,
            to: "https://a.example:443".to_owned(),
            state: HttpState::Done,
            status: Some(200),
            attempts: 1,
            at_ms: 1,
            first_ms: 1,
            error: Some(String::new()),
            headers: BTreeMap::new(),
            body: Some(String::new()),
        };
        let mappings: serde_json::Value = serde_json::from_str(MAPPINGS).unwrap();
        let document = serde_json::to_value(full).unwrap();
        for field in document.as_object().unwrap().keys() {
            assert!(mappings["properties"][field].is_object(), "{field} is not mapped");
        }
    }
}
