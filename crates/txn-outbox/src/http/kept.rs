//! A request as it is kept: the payload of an event.

use serde::{Deserialize, Serialize};
use txn_core::Tid;
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
    pub(crate) tid: Tid,
    pub(crate) request: HttpRequest,
}

#[cfg_attr(not(feature = "http"), allow(dead_code, reason = "it is read by the dispatcher"))]
pub(crate) type KeptRequests = Versioned<Kept, NEWEST>;

impl Kept {
    pub(crate) fn new(tid: Tid, request: &HttpRequest) -> Self {
        Self { format: Format, tid, request: request.clone() }
    }

    /// What the receiver knows it by, however often it comes: the transaction, and the place of the event, of which the id
    /// is made.
    #[cfg(feature = "http")]
    pub(crate) fn idempotency_key(&self, event_id: &str) -> String {
        format!("{}-{:016x}", self.tid, hash(event_id))
    }
}

/// FNV-1a.
pub(crate) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
