//! A request as it is kept: the payload of an event.

use serde::{Deserialize, Serialize};
#[cfg(feature = "http")]
use sha2::{Digest, Sha256};
use txn_core::AttemptId;
use txn_lock::stored::{Format, Versioned};

use crate::http::request::HttpRequest;

/// The topic of events that are HTTP requests.
pub const TOPIC: &str = "http-requests";

/// The newest format of what is kept.
const NEWEST: u32 = 1;

/// A request as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    format: Format<NEWEST>,
    /// The attempt that emitted it.
    pub(crate) tid: AttemptId,
    pub(crate) request: HttpRequest,
}

#[cfg_attr(not(feature = "http"), allow(dead_code, reason = "it is read by the dispatcher"))]
pub(crate) type KeptRequests = Versioned<Kept, NEWEST>;

impl Kept {
    pub(crate) fn new(tid: AttemptId, request: &HttpRequest) -> Self {
        Self { format: Format, tid, request: request.clone() }
    }

    /// What the receiver knows it by, however often it comes: the transaction, and a digest of the id of the event. That has the
    /// key of the request in it, so that two requests of a transaction could be made to look like one by a weaker hash.
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

    /// Two keys whose ids a weak hash (FNV-1a of 64 bits) does not tell apart.
    const MET: [&str; 2] = ["8MGSBInrUoO", "T0jXKUroqDC"];

    #[test]
    fn requests_of_a_transaction_never_look_like_one() {
        let request = HttpRequest::new(Method::Post, "https://a.example/");
        let kept = Kept::new(TID.parse::<AttemptId>().unwrap(), &request);
        let ids = MET.map(|key| format!("{TOPIC}/1/{key}"));
        let keys = ids.map(|id| kept.idempotency_key(&id));
        assert_ne!(keys[0], keys[1]);
        assert!(keys[0].starts_with(TID) && keys[0].len() == TID.len() + 33, "{}", keys[0]);
    }
}
