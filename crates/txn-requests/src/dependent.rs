//! Conditional writes of one document, with later updates of other documents.
//!
//! [`Dependents::write`] writes the document, and logs the updates in the same transaction. The log
//! has one event of the topic [`TOPIC`] for each updated document, with the name of the document as
//! the key. The writer therefore locks only its document and the queues, and none of the updated
//! documents.
//!
//! [`Dependents`] is also the handler of these events. The transaction of an update also removes
//! the event, so each update happens once. The updates of one document happen in the order of their
//! writes. Between a write and its updates, readers see the write without the updates. If that is
//! not acceptable, use a [`Request`](crate::Request).
//!
//! An impossible update becomes a dead letter of the outbox at once, with the reason: for example a
//! failed expectation, or a missing document. The dead letter concerns only the queue of its
//! document, which continues or waits ([`AfterDeadLetter`](txn_outbox::AfterDeadLetter)).

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use txn_core::store::Key;
use txn_core::{Codec, CommitVersion, Domain, Options};
use txn_lock::name;
use txn_lock::stored::{Format, Stored, Versioned};
use txn_outbox::{Delivery, Failure, Handler, Outbox, OutboxError};

use crate::contents::event::UPDATES;
use crate::contents::request::{Condition, Expect, Operation, Target};
use crate::contents::validate;
use crate::error::{RequestError, Result};
use crate::processing::apply::{Handles, Stop, carry_out};
use crate::processing::emit::check_domain;
use crate::processing::handles::OpenHandles;

/// The topic of dependent updates.
pub const TOPIC: &str = UPDATES;

/// The newest format of logged updates.
const NEWEST: u32 = 1;

/// The maximum number of updates per write. Each step of a JSON patch counts as one.
const MOST_UPDATES: usize = 1_000;

/// The maximum number of bytes that `copy` steps add.
///
/// The limit applies to a write, and to the updates of one document.
const MOST_COPIED: usize = 1 << 20;

/// The maximum number of bytes of a queue's key.
const MOST_KEY: usize = 300;

/// The API of dependent writes, and the handler of their updates. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Dependents {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    domain: Domain,
    outbox: Outbox,
    handles: OpenHandles,
}

/// A conditional write of one document, and its dependent updates.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DependentWrite {
    /// The condition on the document, for example an expected version.
    pub condition: Condition,
    /// The change of the document. Any operation except `expect`.
    pub change: Operation,
    /// The updates of other documents. Updates of one document run together, in their order.
    pub updates: Vec<Operation>,
}

impl DependentWrite {
    /// Creates a write without updates.
    #[must_use]
    pub fn new(condition: Condition, change: Operation) -> Self {
        Self { condition, change, updates: Vec::new() }
    }

    /// Adds an update.
    #[must_use]
    pub fn with_update(mut self, update: Operation) -> Self {
        self.updates.push(update);
        self
    }
}

/// The result of a dependent write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The version of the written document.
    pub version: Option<CommitVersion>,
    /// The event ids of the updates, one for each updated document.
    pub events: Vec<String>,
}

/// The logged updates of one document.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Logged {
    format: Format<NEWEST>,
    /// The written document that caused the updates.
    behind: Target,
    operations: Vec<Operation>,
}

impl Dependents {
    /// Creates dependent writes with an outbox of the domain.
    ///
    /// # Errors
    /// [`RequestError::InvalidConfig`] if the outbox belongs to another domain.
    pub fn new(domain: &Domain, outbox: &Outbox) -> Result<Self> {
        check_domain(outbox, domain)?;
        let handles = OpenHandles::new(domain);
        let inner = Inner { domain: domain.clone(), outbox: outbox.clone(), handles };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Writes a document on a condition, and logs its updates.
    ///
    /// Both happen in one transaction.
    ///
    /// # Errors
    /// - [`RequestError::Invalid`] before any read, if an operation is impossible.
    /// - [`RequestError::Refused`] if the condition does not hold or the change does not fit.
    /// - [`RequestError::Outbox`] if too many updates of a document wait.
    /// - Errors of the engine, also for a missing collection.
    ///
    /// After an error of the kind `Unknown`, read the document: if the document is written, the
    /// updates are logged, too.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the write happens completely or not at all.
    pub async fn write(&self, write: &DependentWrite) -> Result<Written> {
        let Inner { domain, outbox, handles } = &*self.inner;
        let own = check(write, domain)?;
        let opened = handles.of(&own).await?;
        let logged = log(write, &handles.of(&write.updates).await?)?;
        for (key, updates) in &logged {
            let checked = outbox.check(TOPIC, key, updates);
            checked.map_err(|error| RequestError::Invalid(error.to_string()))?;
        }
        let options = Options::default();
        let done = domain.run(&options, async |tx| {
            carry_out(tx, &opened, &own, MOST_COPIED).await.map_err(|stop| match stop {
                Stop::Refused(refusal) => RequestError::Refused(refusal),
                Stop::Engine(error) => RequestError::Engine(error),
            })?;
            let mut events = Vec::with_capacity(logged.len());
            for (key, updates) in &logged {
                events.push(outbox.emit(tx, TOPIC, key, updates).await?);
            }
            Ok::<_, RequestError>(events)
        });
        let done = done.await?;
        Ok(Written { version: done.receipt.commit_version, events: done.value })
    }
}

/// Validates a write. Returns its condition and its change as operations.
fn check(write: &DependentWrite, domain: &Domain) -> Result<Vec<Operation>> {
    let DependentWrite { condition, change, updates } = write;
    let invalid = |why: String| Err(RequestError::Invalid(why));
    if matches!(change, Operation::Expect(_)) {
        return invalid("the write changes nothing".to_owned());
    }
    let count: usize = updates.iter().map(validate::steps).sum();
    if count > MOST_UPDATES {
        return invalid(format!("it has {count} updates, at most {MOST_UPDATES} are allowed"));
    }
    let expect = Expect { target: change.target().clone(), that: condition.clone() };
    let own = vec![Operation::Expect(expect), change.clone()];
    let limits = domain.store().limits();
    let of = |what: &str, operations: &[Operation]| {
        let checked = validate::of_operations(operations, &limits);
        checked.map_err(|why| RequestError::Invalid(format!("{what}: {why}")))
    };
    of("the write", &own)?;
    of("the updates", updates)?;
    Ok(own)
}

/// The updates of a write, by the queue of their document.
fn log(write: &DependentWrite, handles: &Handles) -> Result<BTreeMap<String, Logged>> {
    let mut logged = BTreeMap::new();
    for update in &write.updates {
        let target = update.target();
        let Some(handle) = handles.get(&target.collection) else {
            return Err(RequestError::Invalid(format!("{} is not open", target.collection)));
        };
        let key = handle.raw.key(crate::processing::apply::id_of(target));
        let behind = write.change.target().clone();
        let empty = || Logged { format: Format, behind, operations: Vec::new() };
        logged.entry(queue_of(&key)).or_insert_with(empty).operations.push(update.clone());
    }
    Ok(logged)
}

/// The key of a document's queue: its name, shortened if necessary.
///
/// A name that is too long, or has a forbidden character, is replaced by its beginning and a hash.
fn queue_of(key: &Key) -> String {
    let routing = key.routing.as_deref().map(|routing| format!("?{routing}")).unwrap_or_default();
    let text = format!("{}/{}{routing}", key.collection, key.id);
    match name::fits(&text, MOST_KEY) {
        true => text,
        false => name::shortened(&text, MOST_KEY),
    }
}

#[async_trait]
impl Handler for Dependents {
    async fn handle(&self, delivery: Delivery) -> Result<(), Failure> {
        let event = delivery.event();
        let topic = event.queue.topic();
        if topic != TOPIC {
            return Err(Failure::transient(format!("{topic:?} is no topic of dependent updates")));
        }
        let logged = match Versioned::<Logged, NEWEST>::decode(event.payload.get()) {
            Ok(Stored::Known(logged)) => logged,
            Ok(Stored::Newer(format)) => {
                let document = format!("the event {}", event.id);
                return Err(Failure::transient(OutboxError::NewerFormat { document, format }));
            }
            // The parse error may repeat confidential content, so the text leaves it out.
            Err(_) => return Err(Failure::permanent("the payload is no update of a document")),
        };
        let handles = self.inner.handles.of(&logged.operations).await.map_err(failure)?;
        delivery
            .transact::<_, Failure, _>(async |tx| {
                let done = carry_out(tx, &handles, &logged.operations, MOST_COPIED).await;
                done.map(drop).map_err(|stop| match stop {
                    Stop::Refused(refusal) => Failure::permanent(*refusal),
                    Stop::Engine(error) => error.into(),
                })
            })
            .await
    }
}

/// Keeps errors of the engine and the store distinct.
///
/// Outages do not count as failures of the event.
fn failure(error: RequestError) -> Failure {
    match error {
        RequestError::Engine(error) => error.into(),
        RequestError::Store(error) => OutboxError::Store(error).into(),
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_document_name_has_a_valid_queue() {
        assert_eq!(queue_of(&Key::new("stock", "apple")), "stock/apple");
        assert_eq!(queue_of(&Key::new("stock", "apple").routed("a")), "stock/apple?a");
        let long = |end: char| queue_of(&Key::new("stock", "ä".repeat(200) + &end.to_string()));
        assert!(long('a').starts_with("stock/ää") && long('a') != long('b'));
        for queue in [long('a'), queue_of(&Key::new("stock", "a\nb"))] {
            assert!(name::fits(&queue, MOST_KEY), "{queue:?}");
        }
        assert_ne!(queue_of(&Key::new("stock", "a\nb")), queue_of(&Key::new("stock", "ab")));
    }
}
