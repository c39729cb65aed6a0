//! Shards: parts of the queues of a topic.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// The maximum number of shards of an outbox.
pub(crate) const MOST_SHARDS: u16 = 256;

/// A part of the queues of one topic, held by one processor.
///
/// The source defines the number of shards per topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard {
    /// The topic whose queues are divided.
    pub topic: Arc<str>,
    /// The number of the shard, from 0.
    pub number: u16,
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, shard_name(self.number))
    }
}

/// Chooses the shard of a queue at its first event.
///
/// `own` is the shard by the hash of the queue's name. `held` are the shards of the topic that this
/// process holds. The queue goes into `own` if this process holds `own` or no shard. Otherwise the
/// queue goes into another shard of this process, so that the emitting process handles the event.
pub(crate) fn choose_number(own: u16, held: &BTreeSet<u16>) -> u16 {
    let at = usize::from(own) % held.len().max(1);
    match held.contains(&own) {
        true => own,
        false => held.iter().nth(at).copied().unwrap_or(own),
    }
}

/// The shard number in a queue's document.
///
/// The document has `topic/07`, or `07` before format 2.
pub(crate) fn number_of(stored: &str) -> Option<u16> {
    let name = stored.rsplit_once('/').map_or(stored, |(_, name)| name);
    u16::from_str_radix(name, 16).ok()
}

/// The names of all shards, created once.
static SHARDS: LazyLock<Vec<String>> =
    LazyLock::new(|| (0..MOST_SHARDS).map(|shard| format!("{shard:02x}")).collect());

/// The number of a shard as two hexadecimal digits.
pub(crate) fn shard_name(shard: u16) -> &'static str {
    SHARDS.get(usize::from(shard)).map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_queue_goes_into_a_held_shard() {
        assert_eq!(
            choose_number(7, &BTreeSet::new()),
            7,
            "this process holds no shard of the topic"
        );
        assert_eq!(choose_number(7, &BTreeSet::from([3, 7])), 7);
        assert_eq!([4, 5].map(|own| choose_number(own, &BTreeSet::from([3, 9]))), [3, 9]);
    }

    #[test]
    fn stored_shards_are_numbers_with_and_without_a_topic() {
        let shard = Shard { topic: "orders".into(), number: 26 };
        assert_eq!(number_of(&shard.to_string()), Some(26));
        assert_eq!([number_of("1a"), number_of("orders/x"), number_of("")], [Some(26), None, None]);
    }
}
