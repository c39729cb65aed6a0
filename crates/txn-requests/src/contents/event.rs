//! An event of a request, as data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An event that a request emits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Emit {
    /// The topic.
    pub topic: String,
    /// The key within the topic. Events of one key are handled in commit order.
    pub key: String,
    /// The payload.
    #[serde(deserialize_with = "txn_lock::exact::deserialize")]
    pub payload: Value,
}

impl Emit {
    /// Creates an event.
    pub fn new(topic: impl Into<String>, key: impl Into<String>, payload: Value) -> Self {
        Self { topic: topic.into(), key: key.into(), payload }
    }
}
