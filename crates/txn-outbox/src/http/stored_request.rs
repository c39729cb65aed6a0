//! The stored form of a request: the payload of an event.

use serde::{Deserialize, Serialize};
#[cfg(feature = "http")]
use sha2::{Digest, Sha256};
use txn_lock::stored::{Format, Versioned};

use crate::http::request::HttpRequest;

/// The topic of events that are HTTP requests.
pub const TOPIC: &str = "http-requests";

/// The newest format of stored requests.
const NEWEST: u32 = 2;

/// The payload of an event of [`TOPIC`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredRequest {
    format: Format<NEWEST>,
    /// A random id. Format 1 had the tid of the transaction instead.
    #[serde(alias = "tid")]
    id: String,
    pub(crate) request: HttpRequest,
}

#[cfg_attr(not(feature = "http"), allow(dead_code, reason = "it is read by the dispatcher"))]
pub(crate) type StoredRequests = Versioned<StoredRequest, NEWEST>;

impl StoredRequest {
    pub(crate) fn new(id: String, request: &HttpRequest) -> Self {
        Self { format: Format, id, request: request.clone() }
    }

    /// The header `Idempotency-Key`, the same for each call of a request.
    ///
    /// The key has the random id and a digest of the event id. A stored request that is copied to
    /// another queue thus has another key.
    #[cfg(feature = "http")]
    pub(crate) fn idempotency_key(&self, event_id: &str) -> String {
        let digest = Sha256::digest(event_id);
        format!("{}-{:x}", self.id, base16ct::HexDisplay(&digest[..16]))
    }
}

#[cfg(all(test, feature = "http"))]
mod tests {
    use txn_core::Codec as _;

    use super::*;

    #[test]
    fn keys_of_format_1_have_not_changed() {
        let old = r#"{"format":1,"tid":"11111111-2222-11ef-8000-333333333333","request":{"method":"POST","url":"https://a.example/"}}"#;
        let stored = StoredRequests::decode(old).unwrap().known().unwrap();
        let expected = "11111111-2222-11ef-8000-333333333333-a7411387cf155bb1838310efbdb3de3e";
        assert_eq!(stored.idempotency_key("http-requests/1/a"), expected);
    }
}
