//! The limits of requests with documents.

use txn_store::{StoreError, StoreErrorKind};

use crate::transport::room_for;

/// The limits of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLimits {
    /// The maximum number of documents.
    pub(crate) items: usize,
    /// The maximum size of the sent documents, in bytes.
    pub(crate) bytes: usize,
}

impl RequestLimits {
    /// Returns the answer limit for this many documents, in bytes.
    pub(crate) fn room(&self, documents: usize) -> usize {
        room_for(documents, self.bytes)
    }
}

/// Explains an answer about one document that is too large. A retry would not be smaller.
pub(crate) fn too_large(error: StoreError) -> StoreError {
    let advice = "if the documents are that large, raise EsConfig::with_max_bulk_bytes";
    StoreError::new(StoreErrorKind::Misconfigured, format!("{}; {advice}", error.message))
}
