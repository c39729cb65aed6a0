//! Events as processors see them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::name::QueueName;
use crate::shard::Shard;

/// An event that was committed, and was not handled yet.
#[derive(Clone)]
#[non_exhaustive]
pub struct Event {
    /// Its id, the same for ever and however often it is handed out: by it, effects elsewhere are made once.
    pub id: String,
    /// The queue that it belongs to.
    pub queue: QueueName,
    /// Its place in the queue. Grows without a gap in the order of the commits; one that was tried again from the dead
    /// letters may get a new one.
    pub sequence: u64,
    /// When it was emitted, by the wall clock of who did, in milliseconds since the Unix epoch.
    pub emitted_ms: u64,
    /// How often handling it has failed.
    pub failures: u32,
    /// How often handling it began and did not end, as far as that was noted.
    pub unfinished: u32,
    /// What was emitted, as JSON.
    pub payload: Box<RawValue>,
    /// What tells it apart from another one that ever was in its place: of sources that may lose commits and count anew.
    pub mark: Option<Arc<str>>,
    /// The number of its queue's shard, if the source does not choose shards by the hash of the
    /// queue's name.
    pub(crate) shard: Option<u16>,
    /// Why it can never be handled: its payload is not what can be read.
    pub(crate) unfit: Option<Arc<str>>,
}

impl Event {
    /// An event of another source.
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
        Self { id, queue, sequence, emitted_ms, failures, unfinished, payload, mark, shard, unfit }
    }

    /// Its shard, of `shards`.
    pub(crate) fn shard(&self, shards: u16) -> Shard {
        let own = self.queue.shard(shards);
        Shard { number: self.shard.unwrap_or(own.number), ..own }
    }

    /// The payload as a value.
    ///
    /// # Errors
    /// It is no such value.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.payload.get())
    }
}

/// Payloads stay out of logs.
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

/// An event that was set aside.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The event.
    pub event: Event,
    /// Why it failed last.
    pub error: String,
    /// When it was set aside, in milliseconds since the Unix epoch.
    pub died_ms: u64,
}

/// What was set aside, by topic, key and place in the queue.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DeadLetters {
    /// Those that this program can read.
    pub letters: Vec<DeadLetter>,
    /// The others, by the id of the event, with the number of their format: newer programs can.
    pub newer: BTreeMap<String, u32>,
}

impl DeadLetters {
    /// The dead letters of another source, which are put into their order.
    #[must_use]
    pub fn new(mut letters: Vec<DeadLetter>, newer: BTreeMap<String, u32>) -> Self {
        // Sent again in this order, the events of one queue keep theirs.
        letters.sort_by(|a, b| {
            a.event
                .queue
                .cmp_natural(&b.event.queue)
                .then_with(|| a.event.sequence.cmp(&b.event.sequence))
        });
        Self { letters, newer }
    }
}

impl DeadLetter {
    /// A dead letter of another source.
    #[must_use]
    pub fn new(event: Event, error: String, died_ms: u64) -> Self {
        Self { event, error, died_ms }
    }
}
