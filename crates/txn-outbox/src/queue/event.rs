//! Events as processors and handlers see them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::queue::name::QueueName;
use crate::queue::shard::Shard;

/// A committed event that was not handled yet.
#[derive(Clone)]
#[non_exhaustive]
pub struct Event {
    /// The id of the event, the same in each delivery.
    ///
    /// Receivers use the id to make an effect only once.
    pub id: String,
    /// The queue of the event.
    pub queue: QueueName,
    /// The position of the event in its queue. Grows without gaps in commit order.
    ///
    /// A retried dead letter may get a new position.
    pub sequence: u64,
    /// The time of the emit in milliseconds since the Unix epoch.
    ///
    /// The wall clock of the emitting process supplies the time.
    pub emitted_ms: u64,
    /// The earliest time of the delivery in milliseconds since the Unix epoch.
    ///
    /// `None` means at once. The wall clock of the processor counts.
    pub not_before_ms: Option<u64>,
    /// The number of failed deliveries.
    pub failures: u32,
    /// The number of noted starts without an end.
    pub unfinished: u32,
    /// The payload as JSON.
    pub payload: Box<RawValue>,
    /// Distinguishes events of the same position after a loss of commits.
    ///
    /// Only sources that may lose commits set it.
    pub mark: Option<Arc<str>>,
    /// The number of the queue's shard. `None` if the hash of the queue's name selects the shard.
    pub(crate) shard: Option<u16>,
    /// The reason why the payload is unreadable for all handlers.
    pub(crate) unfit: Option<Arc<str>>,
}

impl Event {
    /// Creates an event of a custom source.
    #[must_use]
    pub fn new(
        id: String,
        queue: QueueName,
        sequence: u64,
        emitted_ms: u64,
        failures: u32,
        payload: Box<RawValue>,
    ) -> Self {
        let (unfinished, mark, shard, unfit) = (0, None, None, None);
        Self {
            id,
            queue,
            sequence,
            emitted_ms,
            not_before_ms: None,
            failures,
            unfinished,
            payload,
            mark,
            shard,
            unfit,
        }
    }

    /// When the event begins to wait, in milliseconds since the Unix epoch. The wait is for the
    /// delivery.
    pub(crate) fn waits_since_ms(&self) -> u64 {
        self.emitted_ms.max(self.not_before_ms.unwrap_or(0))
    }

    /// The shard of the event, out of `shards`.
    pub(crate) fn shard(&self, shards: u16) -> Shard {
        let own = self.queue.shard(shards);
        Shard { number: self.shard.unwrap_or(own.number), ..own }
    }

    /// Parses the payload.
    ///
    /// # Errors
    /// The payload is not a value of this type.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.payload.get())
    }
}

/// Leaves the payload out of logs.
impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, sequence, failures, .. } = self;
        f.debug_struct("Event")
            .field("id", id)
            .field("sequence", sequence)
            .field("failures", failures)
            .field("payload_bytes", &self.payload.get().len())
            .finish_non_exhaustive()
    }
}

/// A dead letter: an event that was set aside.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The event that was set aside.
    pub event: Event,
    /// The text of the last failure.
    pub error: String,
    /// The time of death, in milliseconds since the Unix epoch.
    pub died_ms: u64,
}

/// Dead letters, in the order of topic, key and position.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DeadLetters {
    /// The dead letters that this program can read.
    pub letters: Vec<DeadLetter>,
    /// The format number of each unreadable dead letter, by event id.
    ///
    /// Only newer programs can read these dead letters.
    pub newer: BTreeMap<String, u32>,
}

impl DeadLetters {
    /// Sorts the dead letters of a custom source.
    #[must_use]
    pub fn new(mut letters: Vec<DeadLetter>, newer: BTreeMap<String, u32>) -> Self {
        // A retry in this order keeps the order within each queue.
        letters.sort_by(|a, b| {
            a.event
                .queue
                .cmp_natural(&b.event.queue)
                .then_with(|| a.event.sequence.cmp(&b.event.sequence))
        });
        Self { letters, newer }
    }

    /// Keeps the dead letters of one topic; `None` keeps all.
    pub fn retain_topic(&mut self, topic: Option<&str>) {
        let is_of = |id: &str| {
            topic.is_none_or(|topic| {
                id.strip_prefix(topic).is_some_and(|rest| rest.starts_with('/'))
            })
        };
        self.letters.retain(|letter| is_of(&letter.event.id));
        self.newer.retain(|id, _| is_of(id));
    }
}

impl DeadLetter {
    /// Creates a dead letter of a custom source.
    #[must_use]
    pub fn new(event: Event, error: String, died_ms: u64) -> Self {
        Self { event, error, died_ms }
    }
}
