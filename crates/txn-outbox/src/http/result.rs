//! What came of requests, by the ids of their events.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
#[cfg(feature = "http")]
use txn_core::Transaction;
use txn_core::store::Filter;
use txn_core::{Collection, Domain};
use txn_lock::scan::{PAGE, candidates};
use txn_lock::stored::{Format, Stored, Versioned};

use crate::error::{OutboxError, Result};
use crate::http::request::Method;
use crate::model::known;

/// The newest format of results.
const NEWEST: u32 = 1;

/// How many results are kept of each queue. Where one is, is computed from it: it never changes.
const KEPT: u64 = 64;

/// Field mappings, for stores that have some.
const MAPPINGS: &str = r#"{"dynamic":"strict","properties":{
    "format":{"type":"integer"},"id":{"type":"keyword"},"idempotency_key":{"type":"keyword"},
    "method":{"type":"keyword"},"to":{"type":"keyword"},"state":{"type":"keyword"},
    "status":{"type":"integer"},"attempts":{"type":"integer"},
    "at_ms":{"type":"date","format":"epoch_millis"},"first_ms":{"type":"date","format":"epoch_millis"},"error":{"type":"text","index":false},
    "headers":{"type":"object","enabled":false},"body":{"type":"text","index":false}}}"#;

/// What came of a request when it was called last, as far as that was noted. `Debug` shows nothing that the answer said.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HttpResult {
    pub(crate) format: Format<NEWEST>,
    /// The id of its event.
    pub id: String,
    /// What the receiver knows it by.
    pub idempotency_key: String,
    /// The method.
    pub method: Method,
    /// Where it went: scheme, host and port.
    pub to: String,
    /// What came of it.
    pub state: HttpState,
    /// The status of the answer, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How many calls were noted. One whose process died is not.
    pub attempts: u32,
    /// When that was noted, in milliseconds since the Unix epoch, by the wall clock of who did.
    pub at_ms: u64,
    /// When the first call was noted; of a dead letter that was sent again, the first one since. 0 if that was not kept.
    #[serde(default)]
    pub first_ms: u64,
    /// Why it is not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Headers of the answer, as far as they are kept.
    pub headers: BTreeMap<String, String>,
    /// The beginning of the body of the answer, if it is kept.
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

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HttpState {
    /// The answer was 2xx.
    Done,
    /// It failed, and is tried again, unless that was once too often: then it is among the dead letters.
    Failed,
    /// It can never be done, or may not be: it is among the dead letters.
    Refused,
}

type Documents = Versioned<HttpResult, NEWEST>;

/// The results of a domain: documents of the collection `<domain>-http-results`. Of each queue the newest 64 are kept; each is
/// overwritten when its place is needed. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HttpResults {
    domain: Domain,
    results: Collection<Documents>,
}

impl HttpResults {
    /// Opens the results of a domain.
    ///
    /// # Errors
    /// The engine's.
    pub async fn open(domain: &Domain) -> Result<Self> {
        let results = domain.create_system_collection(&collection(domain), MAPPINGS).await?;
        Ok(Self { domain: domain.clone(), results })
    }

    /// What came of a request, by the id that [`HttpRequests::after_commit`](crate::http::HttpRequests::after_commit) returned.
    /// `None` if it was not called yet, if others have its place since, or if it could not be written.
    ///
    /// # Errors
    /// [`OutboxError::NewerFormat`](crate::OutboxError::NewerFormat), or the engine's.
    pub async fn get(&self, id: &str) -> Result<Option<HttpResult>> {
        let Some(place) = place(id) else { return Ok(None) };
        let found = self.domain.reader().verified().get(&self.results, &place).await?;
        let found = found.map(|found| known(&place, found)).transpose()?;
        Ok(found.filter(|found| found.id == id))
    }

    /// Deletes results that were noted at this moment or before. Returns how many.
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

    /// When a request was called first that is called again; `None` if nothing is known of that.
    #[cfg(feature = "http")]
    pub(crate) async fn first_ms(&self, id: &str) -> Result<Option<u64>> {
        let found = self.get(id).await?.filter(|found| found.state == HttpState::Failed);
        Ok(found.map(|found| found.first_ms).filter(|first| *first > 0))
    }

    /// Notes a result, counting those of the same request. What a newer program wrote there stays.
    #[cfg(feature = "http")]
    pub(crate) async fn note(&self, tx: &Transaction, result: &HttpResult) -> Result<()> {
        let Some(place) = place(&result.id) else { return Ok(()) };
        let before = match tx.get(&self.results, &place).await? {
            Some(Stored::Newer(_)) => return Ok(()),
            Some(Stored::Known(found)) if found.id == result.id => found.attempts,
            _ => 0,
        };
        let result = HttpResult { attempts: before.saturating_add(1), ..result.clone() };
        Ok(tx.put(&self.results, place, &Stored::Known(result))?)
    }
}

/// Deletes the results of a domain that were noted at this moment or before, if there are any. Returns how many.
pub(crate) async fn purge(domain: &Domain, before: u64) -> Result<usize> {
    let name = collection(domain);
    let found = domain.store().list_collections(&name).await?;
    match found.iter().any(|found| **found == *name) {
        true => HttpResults::open(domain).await?.purge(before).await,
        false => Ok(0),
    }
}

/// The name of the collection of the results of a domain.
fn collection(domain: &Domain) -> String {
    domain.collection_name("http-results")
}

/// The id of the document of a result: those of a queue go round.
fn place(event_id: &str) -> Option<String> {
    let mut parts = event_id.splitn(3, '/');
    let (topic, sequence, key) = (parts.next()?, parts.next()?, parts.next()?);
    let sequence: u64 = sequence.parse().ok()?;
    Some(format!("{topic}/{}/{key}", sequence % KEPT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_go_round_and_the_mappings_know_every_field() {
        let of = |id: &str| place(id).unwrap_or_default();
        assert_eq!(of("http-requests/7/a/b"), of("http-requests/71/a/b"));
        assert_ne!(of("http-requests/7/a"), of("http-requests/8/a"));
        assert_eq!((place("x"), place("x/y/z")), (None, None));
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
