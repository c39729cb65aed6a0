//! A domain on a server with JSON documents, and statistics of durations.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use txn_core::{Collection, Config, Domain, Error, Transaction, Typed};
use txn_es::{EsConfig, EsStore};

/// The maximum duration of final operations, after the last kill.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// The number of documents of one read.
const PAGE: usize = 500;

/// A collection of JSON documents.
pub(crate) type Documents = Collection<Typed<Value>>;

/// A domain, as one process opened it.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) domain: Domain,
}

impl World {
    pub(crate) async fn open(url: &str, domain: &str, lease: Duration) -> Result<Self, String> {
        let config = EsConfig::from_url(url).map_err(|error| error.to_string())?;
        let store = EsStore::connect(config).await.map_err(|error| error.to_string())?;
        let config = Config::default()
            .with_lease(lease)
            .with_janitor_interval(Some(Duration::from_secs(5)))
            .with_timeout(Duration::from_secs(30));
        let domain = Domain::open_or_create(Arc::new(store), domain, config).await.map_err(said)?;
        Ok(Self { domain })
    }

    /// Opens a collection of this domain.
    pub(crate) async fn documents(&self, what: &str) -> Result<Documents, String> {
        let name = self.collection(what);
        self.domain.create_collection(&name, Some(r#"{"dynamic":false}"#)).await.map_err(said)
    }

    /// Returns the name of a collection of this domain.
    pub(crate) fn collection(&self, what: &str) -> String {
        format!("{}-{what}", self.domain.name())
    }

    /// Reads documents from the primaries.
    pub(crate) async fn read(
        &self,
        of: &Documents,
        ids: &[String],
    ) -> Result<Vec<Option<Value>>, String> {
        let mut found = Vec::with_capacity(ids.len());
        for ids in ids.chunks(PAGE) {
            let page = self.domain.reader().verified().get_many(of, ids).await.map_err(said)?;
            found.extend(page);
        }
        Ok(found)
    }

    /// Returns the numbered documents of a log, from 1 to its head.
    pub(crate) async fn log(
        &self,
        heads: &Documents,
        entries: &Documents,
        of: &str,
    ) -> Result<Vec<Option<Value>>, String> {
        let head = self.read(heads, &[of.to_owned()]).await?.pop().flatten();
        let ids: Vec<String> =
            (1..=number(head.as_ref(), "n")).map(|n| format!("{of}-{n}")).collect();
        self.read(entries, &ids).await
    }
}

/// Adds an entry to a log in a transaction.
///
/// Also adds an amount to the log's sum. So the entries are in the order of the transactions.
pub(crate) async fn append(
    tx: &Transaction,
    (heads, entries): (&Documents, &Documents),
    of: &str,
    entry: &Value,
    amount: i64,
) -> Result<(), Error> {
    let head = tx.get(heads, of).await?;
    let (n, sum) = (number(head.as_ref(), "n") + 1, number(head.as_ref(), "sum") + amount);
    tx.put(heads, of, &serde_json::json!({"n": n, "sum": sum}))?;
    tx.insert(entries, format!("{of}-{n}"), entry)
}

/// Returns a whole number of a document; 0 if it has none.
pub(crate) fn number(document: Option<&Value>, field: &str) -> i64 {
    document.and_then(|document| document[field].as_i64()).unwrap_or(0)
}

pub(crate) fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Returns the median, 99th percentile and maximum, in milliseconds.
///
/// The values are those of durations.
pub(crate) fn spread(what: &str, mut of: Vec<u64>) -> Vec<(String, u64)> {
    of.sort_unstable();
    let at = |percent: usize| of.get((of.len() * percent / 100).min(of.len().saturating_sub(1)));
    let figure = |name: &str, of: Option<&u64>| (format!("{what}: {name}"), *of.unwrap_or(&0));
    vec![figure("median ms", at(50)), figure("p99 ms", at(99)), figure("max ms", of.last())]
}

/// Returns a rate per second.
pub(crate) fn rate(what: &str, count: usize, span: Duration) -> (String, u64) {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1);
    (what.to_owned(), (count as u64).saturating_mul(1_000) / millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_have_their_stated_values() {
        let figures = spread("lag", (1..=200).rev().collect());
        let values: Vec<u64> = figures.into_iter().map(|(_, value)| value).collect();
        assert_eq!(values, [101, 199, 200]);
        assert_eq!(spread("lag", vec![])[2].1, 0);
        assert_eq!(rate("events", 90, Duration::from_secs(60)).1, 1);
    }
}
