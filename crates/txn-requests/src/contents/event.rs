//! An event of a request, as data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use txn_outbox::http;

/// The topic of dependent updates.
pub(crate) const UPDATES: &str = "dependent-updates";

/// An event that a request emits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Emit {
    /// The topic, which selects the handler.
    pub topic: String,
    /// The key within the topic. Events of one key are handled in commit order.
    pub key: String,
    /// The payload, any JSON value.
    #[serde(deserialize_with = "txn_lock::exact::deserialize")]
    pub payload: Value,
}

impl Emit {
    /// Creates an event.
    pub fn new(topic: impl Into<String>, key: impl Into<String>, payload: Value) -> Self {
        Self { topic: topic.into(), key: key.into(), payload }
    }

    /// Whether the topic is that of HTTP requests or of dependent updates.
    ///
    /// A processor carries out such events with its own rights, so no event of a client has such a
    /// topic.
    #[must_use]
    pub fn has_reserved_topic(&self) -> bool {
        [http::TOPIC, UPDATES].contains(&&*self.topic)
    }
}
