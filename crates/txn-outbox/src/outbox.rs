//! The outbox of a domain: the API for emitting events.

mod store_source;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::value::RawValue;
use txn_core::store::{Cursor, LAST_DATE_MS};
use txn_core::{Collection, Domain, ErrorKind, Transaction};
use txn_lock::instance::wall_ms;
use txn_lock::stored::Stored;

use crate::config::{OutboxConfig, ProcessorConfig};
use crate::error::{OutboxError, Result};
use crate::processing::processor::Processor;
use crate::processing::topics::Topics;
use crate::queue::event::Event;
use crate::queue::local_wakeups::LocalWakeups;
use crate::queue::model::{
    DeadLetterDocuments, EventDocument, EventDocuments, Floor, Floors, MAPPINGS, Queue, Queues,
    Settings, SettingsDocuments, known,
};
use crate::queue::name::QueueName;
use crate::queue::shard::{MOST_SHARDS, Shard};
use crate::queue::source::EventSource;

/// The number of retries after a lost race to create the settings.
const MOST_RETRIES: usize = 3;

/// How long before its moment a poll finds an event, in milliseconds.
///
/// The processor then waits for the exact moment. Longer than the time between two polls.
const SOON_MS: u64 = 10_000;

/// The outbox of a domain. Cheap to clone.
///
/// The collection `<domain>-outbox` has one document for each queue. The document contains the
/// waiting events while they are few and small. Each further one has a document of its own.
#[derive(Clone, Debug)]
pub struct Outbox {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) domain: Domain,
    pub(crate) config: OutboxConfig,
    pub(crate) shards: u16,
    pub(crate) queues: Collection<Queues>,
    pub(crate) floors: Collection<Floors>,
    pub(crate) event_documents: Collection<EventDocuments>,
    pub(crate) dead_letters: Collection<DeadLetterDocuments>,
    pub(crate) wakeups: LocalWakeups,
    /// The cursors of bounded polls, by the polled shards. Processors of one process never share
    /// shards.
    pub(crate) poll_cursors: Mutex<BTreeMap<BTreeSet<Shard>, Cursor>>,
}

impl Outbox {
    /// Opens the outbox of a domain, and creates a missing one.
    ///
    /// # Errors
    /// [`OutboxError::InvalidConfig`], [`OutboxError::NewerFormat`], or an error of the engine.
    pub async fn open(domain: &Domain, config: OutboxConfig) -> Result<Self> {
        config.check()?;
        let name = domain.collection_name("outbox");
        let settings = domain.create_system_collection(&name, MAPPINGS).await?;
        let floors = domain.create_system_collection(&name, MAPPINGS).await?;
        let shards = begin(domain, (&settings, &floors), config.shards).await?;
        let inner = Inner {
            domain: domain.clone(),
            config,
            shards,
            queues: domain.create_system_collection(&name, MAPPINGS).await?,
            floors,
            event_documents: domain.create_system_collection(&name, MAPPINGS).await?,
            dead_letters: domain.create_system_collection(&name, MAPPINGS).await?,
            wakeups: LocalWakeups::default(),
            poll_cursors: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Emits an event that exists only if the transaction commits. Returns the event id.
    ///
    /// Processors handle the events of one topic and key in commit order. Transactions that emit to
    /// the same topic and key wait for each other, as for any document. An emit reads and writes
    /// one document. It adds a second one if more than 16 events or 4 KiB of the queue wait. The
    /// first event of a key reads one more document. The commit wakes the processors of this
    /// process at once.
    ///
    /// # Errors
    /// [`OutboxError::Full`] if too many events of the queue wait; [`OutboxError::InvalidName`],
    /// [`OutboxError::InvalidPayload`], [`OutboxError::NewerFormat`]. Errors of the engine as
    /// [`Transaction::get`]: return them from the closure.
    pub async fn emit<P: Serialize + Sync + ?Sized>(
        &self,
        tx: &Transaction,
        topic: &str,
        key: &str,
        payload: &P,
    ) -> Result<String> {
        self.emit_event(tx, topic, key, payload, None).await
    }

    /// Emits an event that is delivered from a moment on.
    ///
    /// Otherwise as [`Outbox::emit`].
    ///
    /// `not_before_ms`: milliseconds since the Unix epoch, by the wall clock of the processor. The
    /// later events of the same topic and key wait for this one, so give a timer a key of its own.
    /// A moment in the past means at once. The delivery may follow late if all processors are busy
    /// or stopped. The timers of one topic and key count for [`OutboxConfig::max_backlog`]. Any
    /// number of keys may have timers: processors read no timer until shortly before its moment.
    ///
    /// A reservation that expires needs no scan: emit its expiry with the reservation. The handler
    /// reads the reservation, and does nothing if it was paid in the meantime.
    ///
    /// # Errors
    /// [`OutboxError::TooLate`] beyond [`OutboxConfig::max_delay`]; otherwise as [`Outbox::emit`].
    pub async fn emit_not_before<P: Serialize + Sync + ?Sized>(
        &self,
        tx: &Transaction,
        topic: &str,
        key: &str,
        payload: &P,
        not_before_ms: u64,
    ) -> Result<String> {
        self.emit_event(tx, topic, key, payload, Some(not_before_ms)).await
    }

    async fn emit_event<P: Serialize + Sync + ?Sized>(
        &self,
        tx: &Transaction,
        topic: &str,
        key: &str,
        payload: &P,
        not_before_ms: Option<u64>,
    ) -> Result<String> {
        let inner = &self.inner;
        let (name, payload) = inner.validated(topic, key, payload)?;
        inner.check_delay(&name, not_before_ms)?;
        let queue = inner.queue_or_new(tx, &name).await?;
        let (waiting, most) = (queue.waiting(), inner.config.max_backlog);
        if waiting >= most {
            return Err(OutboxError::Full { queue: name.to_string(), waiting, most });
        }
        let sequence = queue.appended + 1;
        let (id, emitted_ms) = (name.event_id(sequence), wall_ms(&inner.domain));
        let event = Event::new(id, name, sequence, emitted_ms, 0, payload);
        let event = Event { not_before_ms: not_before_ms.map(|at| at.min(LAST_DATE_MS)), ..event };
        inner.append(tx, queue, &event)?;
        Ok(event.id)
    }

    /// Checks an event in advance, without the state of its queue.
    ///
    /// # Errors
    /// [`OutboxError::InvalidName`], [`OutboxError::InvalidPayload`].
    pub fn check<P: Serialize + ?Sized>(&self, topic: &str, key: &str, payload: &P) -> Result<()> {
        self.inner.validated(topic, key, payload).map(drop)
    }

    #[cfg(feature = "http-requests")]
    pub(crate) fn domain(&self) -> &Domain {
        &self.inner.domain
    }

    /// The name of the domain of this outbox.
    #[must_use]
    pub fn domain_name(&self) -> &str {
        self.inner.domain.name()
    }

    /// Starts a processor of this outbox. See [`Processor::start`].
    ///
    /// # Errors
    /// As [`Processor::start`].
    pub async fn start(&self, config: ProcessorConfig, topics: Topics) -> Result<Processor> {
        Processor::start(&self.inner.domain, self.source(), config, topics).await
    }

    /// The outbox as a source of events.
    #[must_use]
    pub fn source(&self) -> Arc<dyn EventSource> {
        Arc::new(self.clone())
    }
}

impl Inner {
    /// The validated name and payload of an event.
    fn validated<P: Serialize + ?Sized>(
        &self,
        topic: &str,
        key: &str,
        payload: &P,
    ) -> Result<(QueueName, Box<RawValue>)> {
        let name = QueueName::new(topic, key)?;
        let invalid = |why| OutboxError::InvalidPayload { queue: name.to_string(), why };
        let payload =
            serde_json::value::to_raw_value(payload).map_err(|e| invalid(e.to_string()))?;
        let (bytes, most) = (payload.get().len(), self.config.max_payload);
        if bytes > most {
            return Err(invalid(format!("it has {bytes} bytes, at most {most} are allowed")));
        }
        Ok((name, payload))
    }

    /// Refuses a moment that is too far away.
    fn check_delay(&self, name: &QueueName, not_before_ms: Option<u64>) -> Result<()> {
        const DAY_MS: u64 = 86_400_000;
        let delay_ms = not_before_ms.unwrap_or(0).saturating_sub(wall_ms(&self.domain));
        let most_ms = u64::try_from(self.config.max_delay.as_millis()).unwrap_or(u64::MAX);
        match delay_ms <= most_ms {
            true => Ok(()),
            false => Err(OutboxError::TooLate {
                queue: name.to_string(),
                days: delay_ms / DAY_MS,
                most: most_ms / DAY_MS,
            }),
        }
    }

    /// Reads a queue in a transaction.
    pub(crate) async fn queue(&self, tx: &Transaction, name: &QueueName) -> Result<Option<Queue>> {
        let id = name.document();
        let found = tx.get(&self.queues, &id).await?;
        found.map(|found| known(&id, found)).transpose()
    }

    /// Reads a queue in a transaction, or creates a missing one.
    ///
    /// A new queue starts after all positions of deleted queues.
    pub(crate) async fn queue_or_new(&self, tx: &Transaction, name: &QueueName) -> Result<Queue> {
        match self.queue(tx, name).await? {
            Some(queue) => Ok(queue),
            None => Ok(Queue::new(name, self.floor(tx).await?)),
        }
    }

    /// The largest position of all deleted queues.
    pub(crate) async fn floor(&self, tx: &Transaction) -> Result<u64> {
        match tx.get(&self.floors, Floor::ID).await? {
            None => Ok(0),
            Some(found) => Ok(known(Floor::ID, found)?.sequence),
        }
    }

    pub(crate) fn put(&self, tx: &Transaction, name: &QueueName, mut queue: Queue) -> Result<()> {
        queue.assign_shard(|| self.wakeups.choose_shard(name, self.shards));
        Ok(tx.put(&self.queues, name.document(), &Stored::Known(queue))?)
    }

    /// The moment up to which polls find events.
    pub(crate) fn soon_ms(&self) -> u64 {
        wall_ms(&self.domain).saturating_add(SOON_MS)
    }

    /// Writes a queue, and wakes local processors after the commit. Passes on a new event.
    ///
    /// A poll shortly before its moment finds a queue that is not due.
    pub(crate) fn put_and_notify(
        self: &Arc<Self>,
        tx: &Transaction,
        name: &QueueName,
        mut queue: Queue,
        event: Option<&Event>,
    ) -> Result<()> {
        queue.assign_shard(|| self.wakeups.choose_shard(name, self.shards));
        let is_early = queue.is_due_after(self.soon_ms());
        if let Some(shard) = queue.shard().filter(|_| !is_early) {
            let (this, queue) = (self.clone(), name.clone());
            let event = event
                .filter(|_| self.wakeups.has_listener(&shard))
                .map(|event| Event { shard: Some(shard.number), ..event.clone() });
            tx.when_committed(move || {
                this.wakeups.notify_with_event(&queue, &shard, event.as_ref());
            });
        }
        self.put(tx, name, queue)
    }

    /// Writes an event at the end of its queue.
    pub(crate) fn append(
        self: &Arc<Self>,
        tx: &Transaction,
        mut queue: Queue,
        event: &Event,
    ) -> Result<()> {
        queue.append(event, wall_ms(&self.domain));
        let is_inline = queue.store_inline(event);
        self.put_and_notify(tx, &event.queue, queue, Some(event))?;
        if !is_inline {
            let id = event.queue.event_document(event.sequence);
            tx.insert(&self.event_documents, id, &Stored::Known(EventDocument::new(event)))?;
        }
        Ok(())
    }

    /// Removes an event from its queue, or the event's own document.
    pub(crate) fn remove(&self, tx: &Transaction, queue: &mut Queue, event: &Event) -> Result<()> {
        if !queue.remove_inline(event.sequence) {
            tx.delete(&self.event_documents, event.queue.event_document(event.sequence))?;
        }
        Ok(())
    }
}

/// Creates missing settings and the floor. Returns the number of shards of the outbox.
async fn begin(
    domain: &Domain,
    (settings, floors): (&Collection<SettingsDocuments>, &Collection<Floors>),
    wanted: u16,
) -> Result<u16> {
    let mut retries = 0;
    loop {
        let found = domain.transact(async |tx| {
            // The first event of each key reads the floor. Only one transaction at a time can read
            // a missing document.
            if tx.get(floors, Floor::ID).await?.is_none() {
                tx.insert(floors, Floor::ID, &Stored::Known(Floor::new(0)))?;
            }
            if let Some(found) = tx.get(settings, Settings::ID).await? {
                return Ok(known(Settings::ID, found)?.shards);
            }
            tx.insert(settings, Settings::ID, &Stored::Known(Settings::new(wanted)))?;
            Ok::<_, OutboxError>(wanted)
        });
        match found.await {
            // Another process creates the documents at the same moment.
            Err(OutboxError::Engine(error))
                if error.kind() == ErrorKind::Exists && retries < MOST_RETRIES =>
            {
                retries += 1;
            }
            found => {
                let bounded = |shards: u16| shards.clamp(1, MOST_SHARDS);
                return found.map(bounded);
            }
        }
    }
}
