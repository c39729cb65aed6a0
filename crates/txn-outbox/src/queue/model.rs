//! The stored documents of the outbox: settings, queues, events and dead letters.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use txn_lock::stored::{Format, Stored, Versioned};

use crate::error::{OutboxError, Result};
use crate::queue::event::{DeadLetter, Event};
use crate::queue::name::QueueName;
use crate::queue::shard::{Shard, number_of};

/// The newest format of the documents of this crate.
const NEWEST: u32 = 1;

/// The newest format of queues.
///
/// Format 1 had only the number of the shard, and the hash of the queue's name selected the shard.
/// Format 2 had no inline events.
const NEWEST_QUEUE: u32 = 3;

/// The limits of a queue's inline events.
///
/// The limits are the number of events, and the bytes of ids and payloads.
///
/// Each write of the queue writes the inline events again, and each read returns them.
const MOST_INLINE: usize = 16;
const MOST_INLINE_BYTES: usize = 4 << 10;

/// The prefix of queue ids.
pub(crate) const QUEUE: &str = "queue:";

/// Field mappings, for stores with mappings.
pub(crate) const MAPPINGS: &str = r#"{"dynamic":"strict","properties":{
    "kind":{"type":"keyword"},"format":{"type":"integer"},"shards":{"type":"integer"},
    "topic":{"type":"keyword"},"key":{"type":"keyword"},"id":{"type":"keyword"},"sequence":{"type":"long"},
    "appended":{"type":"long"},"handled":{"type":"long"},"source":{"type":"keyword"},"epoch":{"type":"keyword"},"mark":{"type":"keyword"},"pending":{"type":"keyword"},"blocked":{"type":"long"},
    "failing":{"type":"object","enabled":false},"inline":{"type":"object","enabled":false},"payload":{"type":"object","enabled":false},
    "emitted_ms":{"type":"date","format":"epoch_millis"},"died_ms":{"type":"date","format":"epoch_millis"},"not_before_ms":{"type":"date","format":"epoch_millis"},
    "failures":{"type":"integer"},"error":{"type":"text","index":false}}}"#;

/// The settings of the whole outbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) kind: SettingsKind,
    pub(crate) format: Format<NEWEST>,
    pub(crate) shards: u16,
}

impl Settings {
    /// The id of the document.
    pub(crate) const ID: &str = "settings";

    pub(crate) fn new(shards: u16) -> Self {
        Self { kind: SettingsKind::Settings, format: Format, shards }
    }
}

/// The state of a queue. Positions of events start at 1.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Queue {
    pub(crate) kind: QueueKind,
    pub(crate) format: Format<NEWEST_QUEUE>,
    pub(crate) topic: String,
    pub(crate) key: String,
    /// The position of the last emitted event.
    pub(crate) appended: u64,
    /// The position of the last event that was handled or set aside.
    pub(crate) handled: u64,
    /// The time of the last emit. `None` in documents of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) emitted_ms: Option<u64>,
    /// The shard as [`Shard`] is displayed, while events wait. Processors filter by this field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pending: Option<String>,
    /// When the next event is due, in milliseconds since the Unix epoch.
    ///
    /// A queue without the field may be due. The next event decides. Processors filter by the
    /// field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) not_before_ms: Option<u64>,
    /// The position of a dead letter that blocks the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) blocked: Option<u64>,
    /// The failures of the next event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failing: Option<Failing>,
    /// Waiting events in this document, by position. The others have documents of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) inline: Vec<InlineEvent>,
}

/// A waiting event in the document of its queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct InlineEvent {
    pub(crate) id: String,
    pub(crate) sequence: u64,
    pub(crate) emitted_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) not_before_ms: Option<u64>,
    pub(crate) payload: Box<RawValue>,
}

impl InlineEvent {
    fn new(event: &Event) -> Self {
        Self {
            id: event.id.clone(),
            sequence: event.sequence,
            emitted_ms: event.emitted_ms,
            not_before_ms: event.not_before_ms,
            payload: event.payload.clone(),
        }
    }

    fn bytes(&self) -> usize {
        self.id.len() + self.payload.get().len()
    }

    fn event(self, queue: &QueueName) -> Event {
        let Self { id, sequence, emitted_ms, not_before_ms, payload } = self;
        let event = Event::new(id, queue.clone(), sequence, emitted_ms, 0, payload);
        Event { not_before_ms, ..event }
    }
}

/// The failures of an event.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failing {
    pub(crate) sequence: u64,
    pub(crate) failures: u32,
    /// The number of noted starts without an end.
    #[serde(default)]
    pub(crate) unfinished: u32,
    pub(crate) error: String,
}

impl Queue {
    /// Creates a queue with a first event after this position.
    pub(crate) fn new(name: &QueueName, after: u64) -> Self {
        Self {
            kind: QueueKind::Queue,
            format: Format,
            topic: name.topic().to_owned(),
            key: name.key().to_owned(),
            appended: after,
            handled: after,
            emitted_ms: None,
            pending: None,
            not_before_ms: None,
            blocked: None,
            failing: None,
            inline: Vec::new(),
        }
    }

    pub(crate) fn waiting(&self) -> u64 {
        self.appended.saturating_sub(self.handled)
    }

    /// Whether the queue is empty, and had no emit since.
    pub(crate) fn is_idle(&self, since_ms: u64) -> bool {
        let is_empty = self.waiting() == 0 && self.blocked.is_none();
        is_empty && self.emitted_ms.is_none_or(|at| at <= since_ms)
    }

    /// The failures of the event at this position.
    fn failing_of(&self, sequence: u64) -> Option<&Failing> {
        self.failing.as_ref().filter(|failing| failing.sequence == sequence)
    }

    /// The number of failures of the event at this position.
    pub(crate) fn failures_of(&self, sequence: u64) -> u32 {
        self.failing_of(sequence).map_or(0, |failing| failing.failures)
    }

    /// Adds what the queue knows of a waiting event.
    ///
    /// The queue knows failures, unfinished starts and the shard.
    pub(crate) fn waiting_event(&self, event: Event) -> Event {
        let failing = self.failing_of(event.sequence);
        let (failures, unfinished) =
            failing.map_or((0, 0), |failing| (failing.failures, failing.unfinished));
        Event { failures, unfinished, shard: self.shard_number(), ..event }
    }

    /// Keeps an event in this document, if there is room.
    pub(crate) fn store_inline(&mut self, event: &Event) -> bool {
        let event = InlineEvent::new(event);
        let bytes: usize = self.inline.iter().chain([&event]).map(InlineEvent::bytes).sum();
        let fits = self.inline.len() < MOST_INLINE && bytes <= MOST_INLINE_BYTES;
        if fits {
            let at = self.inline.partition_point(|other| other.sequence < event.sequence);
            self.inline.insert(at, event);
        }
        fits
    }

    /// Returns an inline event by its position.
    pub(crate) fn inline_event(&self, name: &QueueName, sequence: u64) -> Option<Event> {
        let found = self.inline.iter().find(|event| event.sequence == sequence);
        found.map(|event| event.clone().event(name))
    }

    /// Removes an inline event. Returns whether it was in this document.
    pub(crate) fn remove_inline(&mut self, sequence: u64) -> bool {
        let before = self.inline.len();
        self.inline.retain(|event| event.sequence != sequence);
        self.inline.len() < before
    }

    /// Notes a start of the event at this position.
    pub(crate) fn begin(&mut self, sequence: u64) {
        let failing = self.failing.take().filter(|failing| failing.sequence == sequence);
        let first = Failing { sequence, failures: 0, unfinished: 0, error: String::new() };
        let failing = failing.unwrap_or(first);
        let unfinished = failing.unfinished.saturating_add(1);
        self.failing = Some(Failing { unfinished, ..failing });
    }

    /// Checks that an event is the next of this queue.
    pub(crate) fn check_next(&self, event: &Event) -> Result<()> {
        let is_there = event.shard.is_none_or(|shard| self.shard_number() == Some(shard));
        match self.blocked.is_none() && self.handled + 1 == event.sequence && is_there {
            true => Ok(()),
            false => Err(OutboxError::NotNext(event.id.clone())),
        }
    }

    /// Adds an event at the end of the queue.
    pub(crate) fn append(&mut self, event: &Event, now_ms: u64) {
        if self.waiting() == 0 {
            self.not_before_ms = event.not_before_ms;
        }
        (self.appended, self.emitted_ms) = (event.sequence, Some(now_ms));
    }

    /// Removes the first event from the queue.
    pub(crate) fn advance(&mut self) {
        self.handled += 1;
        self.failing = None;
        self.not_before_ms = None;
    }

    /// Unblocks the queue after a decision on its dead letter.
    pub(crate) fn unblock(&mut self) {
        self.blocked = None;
        self.not_before_ms = None;
    }

    /// Whether a poll until this moment leaves the queue out.
    pub(crate) fn is_due_after(&self, at_ms: u64) -> bool {
        self.not_before_ms.is_some_and(|not_before_ms| not_before_ms > at_ms)
    }

    /// Sets the shard before the queue is written.
    ///
    /// A queue with waiting events keeps its shard. An empty queue gets a new shard from `choose`
    /// once an event waits.
    pub(crate) fn assign_shard(&mut self, choose: impl FnOnce() -> Shard) {
        let waits = self.waiting() > 0 && self.blocked.is_none();
        let shard = self.pending.take().filter(|_| waits);
        self.pending = shard.or_else(|| waits.then(|| choose().to_string()));
    }

    /// The number of the shard, if events wait.
    pub(crate) fn shard_number(&self) -> Option<u16> {
        self.pending.as_deref().and_then(number_of)
    }

    /// The shard, if events wait.
    pub(crate) fn shard(&self) -> Option<Shard> {
        Some(Shard { topic: self.topic.as_str().into(), number: self.shard_number()? })
    }
}

/// The largest position of all deleted queues.
///
/// New queues begin after this position, so that event ids never repeat.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Floor {
    pub(crate) kind: FloorKind,
    pub(crate) format: Format<NEWEST>,
    pub(crate) sequence: u64,
}

impl Floor {
    /// The id of the document.
    pub(crate) const ID: &str = "floor";

    pub(crate) fn new(sequence: u64) -> Self {
        Self { kind: FloorKind::Floor, format: Format, sequence }
    }
}

/// A waiting event in a document of its own.
///
/// The queue has no room for the event.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EventDocument {
    pub(crate) kind: EventKind,
    pub(crate) format: Format<NEWEST>,
    pub(crate) id: String,
    pub(crate) topic: String,
    pub(crate) key: String,
    pub(crate) sequence: u64,
    pub(crate) emitted_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) not_before_ms: Option<u64>,
    pub(crate) payload: Box<RawValue>,
}

impl EventDocument {
    pub(crate) fn new(event: &Event) -> Self {
        Self {
            kind: EventKind::Event,
            format: Format,
            id: event.id.clone(),
            topic: event.queue.topic().to_owned(),
            key: event.queue.key().to_owned(),
            sequence: event.sequence,
            emitted_ms: event.emitted_ms,
            not_before_ms: event.not_before_ms,
            payload: event.payload.clone(),
        }
    }

    pub(crate) fn event(self, queue: &QueueName) -> Event {
        let Self { id, sequence, emitted_ms, not_before_ms, payload, .. } = self;
        InlineEvent { id, sequence, emitted_ms, not_before_ms, payload }.event(queue)
    }
}

/// A dead letter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DeadLetterDocument {
    pub(crate) kind: DeadKind,
    pub(crate) format: Format<NEWEST>,
    pub(crate) id: String,
    pub(crate) topic: String,
    pub(crate) key: String,
    pub(crate) sequence: u64,
    pub(crate) emitted_ms: u64,
    pub(crate) died_ms: u64,
    pub(crate) failures: u32,
    pub(crate) error: String,
    pub(crate) payload: Box<RawValue>,
}

impl DeadLetterDocument {
    pub(crate) fn new(event: &Event, failures: u32, error: &str, died_ms: u64) -> Self {
        Self {
            kind: DeadKind::Dead,
            format: Format,
            id: event.id.clone(),
            topic: event.queue.topic().to_owned(),
            key: event.queue.key().to_owned(),
            sequence: event.sequence,
            emitted_ms: event.emitted_ms,
            died_ms,
            failures,
            error: error.to_owned(),
            payload: event.payload.clone(),
        }
    }

    pub(crate) fn document(id: &str) -> String {
        format!("dead:{id}")
    }

    pub(crate) fn dead_letter(self) -> Result<DeadLetter> {
        let queue = QueueName::new(&self.topic, &self.key)?;
        let Self { id, sequence, emitted_ms, died_ms, failures, error, payload, .. } = self;
        let event = Event::new(id, queue, sequence, emitted_ms, failures, payload);
        Ok(DeadLetter { event, error, died_ms })
    }
}

txn_lock::document_kinds! {
    SettingsKind: Settings;
    QueueKind: Queue;
    FloorKind: Floor;
    EventKind: Event;
    DeadKind: Dead;
}

pub(crate) type SettingsDocuments = Versioned<Settings, NEWEST>;
pub(crate) type Queues = Versioned<Queue, NEWEST_QUEUE>;
pub(crate) type Floors = Versioned<Floor, NEWEST>;
pub(crate) type EventDocuments = Versioned<EventDocument, NEWEST>;
pub(crate) type DeadLetterDocuments = Versioned<DeadLetterDocument, NEWEST>;

/// The document, or an error if its format is newer.
pub(crate) fn known<T>(document: &str, stored: Stored<T>) -> Result<T> {
    stored
        .known()
        .map_err(|format| OutboxError::NewerFormat { document: document.to_owned(), format })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(sequence: u64, bytes: usize) -> Event {
        let queue = QueueName::new("t", "k").unwrap();
        let payload = format!("\"{}\"", "x".repeat(bytes));
        let payload = RawValue::from_string(payload).unwrap();
        Event::new(queue.event_id(sequence), queue, sequence, 0, 0, payload)
    }

    #[test]
    fn inline_events_are_bounded_and_ordered() {
        let large = event(1, MOST_INLINE_BYTES);
        let mut queue = Queue::new(&large.queue, 0);
        assert!(!queue.store_inline(&large), "it is too large");
        let most = u64::try_from(MOST_INLINE).unwrap();
        for sequence in (2..=most + 1).rev() {
            assert!(queue.store_inline(&event(sequence, 1)));
        }
        assert!(!queue.store_inline(&event(1, 1)), "there are too many");
        let order: Vec<u64> = queue.inline.iter().map(|event| event.sequence).collect();
        assert_eq!(order, (2..=most + 1).collect::<Vec<u64>>());
        assert!(!queue.remove_inline(1));
        assert!(queue.remove_inline(2));
        assert!(queue.inline_event(&large.queue, 2).is_none());
        assert!(!queue.store_inline(&event(1, MOST_INLINE_BYTES)), "the rest has too few bytes");
        assert!(queue.store_inline(&event(1, MOST_INLINE_BYTES / 2)));
        assert_eq!(queue.inline_event(&large.queue, 1).map(|event| event.sequence), Some(1));
    }

    #[test]
    fn the_mappings_know_every_field() {
        let queue = QueueName::new("t", "k").unwrap();
        let payload = RawValue::from_string("1".to_owned()).unwrap();
        let event = Event::new(queue.event_id(1), queue, 1, 2, 0, payload);
        let event = Event { not_before_ms: Some(3), ..event };
        let failing = Some(Failing { sequence: 1, failures: 1, unfinished: 1, error: "e".into() });
        let (pending, blocked) = (Some("00".to_owned()), Some(1));
        let emitted_ms = Some(2);
        let not_before_ms = Some(3);
        let new = Queue::new(&event.queue, 0);
        let inline = vec![InlineEvent::new(&event)];
        let full = Queue { pending, blocked, failing, emitted_ms, not_before_ms, inline, ..new };
        let mappings: serde_json::Value = serde_json::from_str(MAPPINGS).unwrap();
        for document in [
            serde_json::to_value(full).unwrap(),
            serde_json::to_value(EventDocument::new(&event)).unwrap(),
            serde_json::to_value(DeadLetterDocument::new(&event, 1, "e", 3)).unwrap(),
            serde_json::to_value(Settings::new(1)).unwrap(),
            serde_json::to_value(Floor::new(1)).unwrap(),
        ] {
            for field in document.as_object().unwrap().keys() {
                assert!(mappings["properties"][field].is_object(), "{field} is not mapped");
            }
        }
    }
}
