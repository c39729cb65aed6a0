//! The stored form of a request: the payload of an event.

use serde::{Deserialize, Serialize};
#[cfg(feature = "http")]
use sha2::{Digest, Sha256};
use txn_core::AttemptId;
use txn_lock::stored::{Format, Versioned};

use crate::http::request::HttpRequest;

/// The topic of events that are HTTP requests.
pub const TOPIC: &str = "http-requests";

/// The newest format of stored requests.
const NEWEST: u32 = 1;

/// The payload of an event of [`TOPIC`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredRequest {
    format: Format<NEWEST>,
    /// The attempt that emitted the request.
    pub(crate) tid: AttemptId,
    pub(crate) request: HttpRequest,
}

#[cfg_attr(not(feature = "http"), allow(dead_code, reason = "it is read by the dispatcher"))]
pub(crate) type StoredRequests = Versioned<StoredRequest, NEWEST>;

impl StoredRequest {
    pub(crate) fn new(tid: AttemptId, request: &HttpRequest) -> Self {
        Self { format: Format, tid, request: request.clone() }
    }

    /// The header `Idempotency-Key`, the same for each call of a request.
    ///
    /// The key has the transaction and a digest of the event id. The event id contains the key of
    /// the request, which a client may choose. With a weaker hash a client could give two requests
    /// of a transaction the same key.
    #[cfg(feature = "http")]
    pub(crate) fn idempotency_key(&self, event_id: &str) -> String {
        let digest = Sha256::digest(event_id);
        format!("{}-{:x}", self.tid, base16ct::HexDisplay(&digest[..16]))
    }
}

#[cfg(all(test, feature = "http"))]
mod tests {
    use super::*;
    use crate::http::request::Method;

    const TID: &str = "11111111-2222-11ef-8000-333333333333";

    /// Two keys with ids of the same weak hash (64-bit FNV-1a).
    const COLLIDING: [&str; 2] = ["8MGSBInrUoO", "T0jXKUroqDC"];

    #[test]
    fn requests_of_a_transaction_have_distinct_keys() {
        let request = HttpRequest::new(Method::Post, "https://a.example/");
        let stored = StoredRequest::new(TID.parse::<AttemptId>().unwrap(), &request);
        let ids = COLLIDING.map(|key| format!("{TOPIC}/1/{key}"));
        let keys = ids.map(|id| stored.idempotency_key(&id));
        assert_ne!(keys[0], keys[1]);
        assert!(keys[0].starts_with(TID) && keys[0].len() == TID.len() + 33, "{}", keys[0]);
    }
}
