//! Shards: parts of the queues of a topic.

use std::fmt;
use std::sync::{Arc, LazyLock};

/// Most shards of an outbox.
pub(crate) const MOST_SHARDS: u16 = 256;

/// A part of the queues of one topic, by a hash of their names: what one processor at a time holds. Each topic has as many as
/// its source says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard {
    /// The topic.
    pub topic: Arc<str>,
    /// Its number, from 0.
    pub number: u16,
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, shard_name(self.number))
    }
}

/// Names of shards, made once: what filters ask for outlives them.
static SHARDS: LazyLock<Vec<String>> =
    LazyLock::new(|| (0..MOST_SHARDS).map(|shard| format!("{shard:02x}")).collect());

/// The number of a shard as it is stored: two hexadecimal digits.
pub(crate) fn shard_name(shard: u16) -> &'static str {
    SHARDS.get(usize::from(shard)).map_or("", String::as_str)
}
