//! The bounds of a store.

use super::{Key, Refusal, RefusalKind};

/// Bounds that every caller can rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The longest id and the longest routing, in bytes of UTF-8.
    pub max_id_bytes: usize,
    /// The largest source of one document, in bytes.
    pub max_document_bytes: usize,
    /// Whether operations of many callers should share requests.
    ///
    /// True if few large requests are cheaper than many small ones. Default false: right for a
    /// store without a round trip, and for a store that groups commits itself.
    pub batches_requests: bool,
    /// Whether transactions on the same documents should be merged into one commit.
    ///
    /// True if a commit is slow. Default false: right for a store in memory.
    pub merges_transactions: bool,
}

impl Limits {
    /// Creates limits from the sizes of ids and documents, in bytes.
    #[must_use]
    pub const fn new(max_id_bytes: usize, max_document_bytes: usize) -> Self {
        let (batches_requests, merges_transactions) = (false, false);
        Self { max_id_bytes, max_document_bytes, batches_requests, merges_transactions }
    }

    /// Sets [`Limits::batches_requests`].
    #[must_use]
    pub const fn with_batches_requests(mut self, batches_requests: bool) -> Self {
        self.batches_requests = batches_requests;
        self
    }

    /// Sets [`Limits::merges_transactions`].
    #[must_use]
    pub const fn with_merges_transactions(mut self, merges_transactions: bool) -> Self {
        self.merges_transactions = merges_transactions;
        self
    }

    /// Checks whether a write is within these limits.
    ///
    /// The engine checks before the first lock, and a store checks before it sends a request.
    ///
    /// # Errors
    /// The refusal that the store would return.
    pub fn check(&self, key: &Key, source_len: usize) -> Result<(), Refusal> {
        let refuse = |kind, reason| Err(Refusal { kind, reason });
        for (what, value) in [("id", Some(&key.id)), ("routing", key.routing.as_ref())] {
            let Some(value) = value else { continue };
            if value.is_empty() {
                return refuse(RefusalKind::Id, format!("the {what} is empty"));
            }
            if value.len() > self.max_id_bytes {
                let (len, max) = (value.len(), self.max_id_bytes);
                return refuse(
                    RefusalKind::Id,
                    format!("the {what} has {len} bytes, the limit is {max}"),
                );
            }
        }
        if source_len > self.max_document_bytes {
            let max = self.max_document_bytes;
            let reason = format!("the document has {source_len} bytes, the limit is {max}");
            return refuse(RefusalKind::TooLarge, reason);
        }
        Ok(())
    }
}
