//! The names of queues: a topic and a key.

use std::cmp::Ordering;
use std::fmt;

use sha2::{Digest, Sha256};
use txn_lock::name;

use crate::error::{OutboxError, Result};
use crate::queue::shard::Shard;

/// The maximum number of bytes of a topic.
const MOST_TOPIC: usize = 64;

/// The maximum number of bytes of a key.
const MOST_KEY: usize = 300;

/// The name of a queue: a topic and a key.
///
/// Processors handle the events of one queue one after the other, in commit order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName {
    topic: String,
    key: String,
}

impl QueueName {
    /// Creates the name of a queue.
    ///
    /// # Errors
    /// [`OutboxError::InvalidName`] unless the topic has 1 to 64 bytes without a slash, the key has
    /// 1 to 300 bytes, and neither has control characters.
    pub fn new(topic: &str, key: &str) -> Result<Self> {
        check("the topic", topic, MOST_TOPIC, " and slashes", |c| c == '/')?;
        check("the key", key, MOST_KEY, "", |_| false)?;
        Ok(Self { topic: topic.to_owned(), key: key.to_owned() })
    }

    /// The topic, which selects the handler.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The key within the topic.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The order for operators: numbers in keys compare as numbers.
    pub(crate) fn cmp_natural(&self, other: &Self) -> Ordering {
        let keys = || alphanumeric_sort::compare_str(&self.key, &other.key);
        self.topic.cmp(&other.topic).then_with(keys).then_with(|| self.key.cmp(&other.key))
    }

    /// The id of the queue's document.
    pub(crate) fn document(&self) -> String {
        format!("queue:{self}")
    }

    /// The id of an event's document.
    pub(crate) fn event_document(&self, sequence: u64) -> String {
        format!("event:{}", self.event_id(sequence))
    }

    /// The id of the event that is emitted at this position. Never changes.
    pub(crate) fn event_id(&self, sequence: u64) -> String {
        format!("{}/{sequence}/{}", self.topic, self.key)
    }

    /// The shard by the hash of the name, out of `shards`.
    ///
    /// The number is the first 32 bits of the SHA-256 of the name, modulo `shards`. Other programs
    /// compute the same number, so it must never change.
    #[must_use]
    pub fn shard(&self, shards: u16) -> Shard {
        Shard { topic: self.topic.as_str().into(), number: self.shard_number(shards) }
    }

    pub(crate) fn shard_number(&self, shards: u16) -> u16 {
        u16::try_from(hash(&self.to_string()) % u32::from(shards.max(1))).unwrap_or(0)
    }
}

/// The first 32 bits of the SHA-256 of a text.
///
/// The hash spreads values evenly. Different texts may have the same hash.
pub(crate) fn hash(text: &str) -> u32 {
    let [a, b, c, d, ..] = <[u8; 32]>::from(Sha256::digest(text));
    u32::from_be_bytes([a, b, c, d])
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.key)
    }
}

fn check(
    what: &'static str,
    text: &str,
    most: usize,
    more: &'static str,
    odd: fn(char) -> bool,
) -> Result<()> {
    if name::fits(text, most) && !text.contains(odd) {
        return Ok(());
    }
    let text = text.chars().take(40).collect();
    Err(OutboxError::InvalidName { what, text, most, more })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::shard::shard_name;

    #[test]
    fn invalid_queue_names_are_refused() {
        let long = "x".repeat(301);
        for (topic, key) in
            [("", "a"), ("a", ""), ("a/b", "c"), ("a\n", "b"), ("a", "b\0"), ("a", &long)]
        {
            let error = QueueName::new(topic, key).expect_err("refused");
            assert!(matches!(error, OutboxError::InvalidName { .. }), "{error:?}");
            assert!(!error.to_string().contains('\n') && error.to_string().len() < 200, "{error}");
        }
        let name = QueueName::new("a", "1/b").expect("a name");
        assert_eq!(name.document(), "queue:a/1/b");
        // The position precedes the key, because a key may contain slashes.
        assert_eq!(name.event_document(7), "event:a/7/1/b");
    }

    #[test]
    fn shards_have_names_and_every_queue_has_one() {
        assert_eq!(
            [shard_name(0), shard_name(9), shard_name(26), shard_name(255)],
            ["00", "09", "1a", "ff"]
        );
        let name = |key: &str| QueueName::new("accounts", key).expect("a name");
        let of = |key: &str, shards| name(key).shard(shards).number;
        assert_eq!(name("carol").shard(256).to_string(), "accounts/8e");
        // The shard numbers must never change: waiting events are found under them.
        assert_eq!([of("alice", 16), of("bob", 16), of("carol", 256)], [15, 2, 142]);
        let mut met: Vec<u16> = (0..200).map(|at| of(&format!("key-{at}"), 8)).collect();
        met.sort_unstable();
        met.dedup();
        assert_eq!(met, (0..8).collect::<Vec<u16>>());
    }
}
