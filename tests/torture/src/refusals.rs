//! Counts of what a server refuses.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use txn_core::store::{Key, Layer, Outcome, Read, Store, StoreError, Write};

/// Reasons of refusals by words of their texts.
const REASONS: [(&str, &str); 8] = [
    ("circuit_breaking", "circuit breaker"),
    ("Data too large", "circuit breaker"),
    ("rejected_execution", "full queue or too many bytes"),
    ("429", "another 429"),
    ("closed", "closed index"),
    ("shard", "shard without a primary"),
    ("timed out", "no answer in time"),
    ("onnect", "no connection"),
];

/// The refusals of a server so far.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    counts: Mutex<BTreeMap<String, u64>>,
}

impl Refusals {
    /// Returns the counts, line by line.
    pub(crate) fn lines(&self) -> Vec<(String, u64)> {
        self.counts.lock().clone().into_iter().collect()
    }

    fn add(&self, what: &str, text: &str) {
        let reason = REASONS.iter().find(|(word, _)| text.contains(word));
        let reason = reason.map_or("another reason", |(_, reason)| reason);
        *self.counts.lock().entry(format!("{what}: {reason}")).or_default() += 1;
    }

    fn add_error(&self, what: &str, error: &StoreError) {
        self.add(what, &error.to_string());
    }

    fn add_reads(&self, reads: &[Read]) {
        for read in reads {
            if let Read::Unavailable(error) = read {
                self.add_error("reads of documents refused", error);
            }
        }
    }
}

/// Passes every call to another store, and counts refusals.
#[derive(Debug)]
pub(crate) struct Counted {
    inner: Arc<dyn Store>,
    refusals: Arc<Refusals>,
}

impl Counted {
    pub(crate) fn new(inner: Arc<dyn Store>, refusals: Arc<Refusals>) -> Self {
        Self { inner, refusals }
    }
}

#[async_trait]
impl Layer for Counted {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn around<T: Send>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let result = call.await;
        if let Err(error) = &result {
            self.refusals.add_error("other requests failed", error);
        }
        result
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        let reads = self.inner.get_many(keys).await;
        self.refusals.add_reads(&reads);
        reads
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        let reads = self.inner.read_primary(keys).await;
        self.refusals.add_reads(&reads);
        reads
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let outcomes = self.inner.write_many(writes).await;
        for outcome in &outcomes {
            let (what, text) = match outcome {
                Outcome::Rejected(text) => ("writes rejected", text),
                Outcome::RejectedInDoubt(text) => ("writes rejected in doubt", text),
                Outcome::Unknown(text) => ("writes unknown", text),
                Outcome::Invalid(refusal) => ("writes invalid", &refusal.reason),
                _ => continue,
            };
            self.refusals.add(what, text);
        }
        outcomes
    }
}
