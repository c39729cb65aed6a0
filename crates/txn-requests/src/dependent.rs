//! A write of one document on a condition, with updates of others that follow it.
//!
//! [`Dependents::write`] writes the one document, and logs the updates in the same transaction: for each document that they are
//! about one event of the topic [`TOPIC`], under the document's name. So the writer waits for the locks of one document and
//! of the logs, not for those of the others. [`Dependents`] is also the handler of these events, for any processors: what an
//! event asks for, and that it is handled, is one transaction, so each update happens once; those of one document happen in the
//! order of the writes that asked for them. Between the write and its updates readers see the one without the others: where they
//! must not, a [`Request`](crate::Request) does all at once.
//!
//! What cannot be done as things stand (an expectation that does not hold, a document that is missing) becomes a dead letter
//! of the outbox at once, with the reason. It concerns its own document at most: that goes on with the next, or waits, as
//! [`AfterDeath`](txn_outbox::AfterDeath) says.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use txn_core::store::Key;
use txn_core::{Codec, CommitVersion, Domain, Options};
use txn_lock::name;
use txn_lock::stored::{Format, Stored, Versioned};
use txn_outbox::{Delivery, Failure, Handler, Outbox, OutboxError};

use crate::apply::{Handles, Stop, carry_out};
use crate::emit::{UPDATES, check_domain};
use crate::error::{RequestError, Result};
use crate::handles::OpenHandles;
use crate::request::{Condition, Expect, Operation, Target};
use crate::validate;

/// The topic of events that are updates of a document.
pub const TOPIC: &str = UPDATES;

/// The newest format of logged updates.
const NEWEST: u32 = 1;

/// Most updates of a write. Each step of a JSON patch counts as one.
const MOST_UPDATES: usize = 1_000;

/// Most bytes that the `copy` steps of a write, or of the updates of one document, may add.
const MOST_COPIED: usize = 1 << 20;

/// Most bytes of the key of a queue.
const MOST_KEY: usize = 300;

/// Writes of single documents with updates that depend on them, and the handler of these updates. Cheap to clone.
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

/// A write of one document on a condition, and what follows it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DependentWrite {
    /// What has to hold of the document: the version that was read, for instance, or that there is none.
    pub condition: Condition,
    /// What is done to it: anything but to expect.
    pub change: Operation,
    /// What is done to other documents afterwards. Those of one document are done together, in their order.
    pub updates: Vec<Operation>,
}

impl DependentWrite {
    /// A write without updates.
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

/// A write that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The version that was written.
    pub version: Option<CommitVersion>,
    /// The ids of the events that the updates are, one for each document.
    pub events: Vec<String>,
}

/// Updates of one document, as they are logged.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Logged {
    format: Format<NEWEST>,
    /// The document whose write they follow.
    behind: Target,
    operations: Vec<Operation>,
}

impl Dependents {
    /// Writes whose updates are logged in an outbox of the domain.
    ///
    /// # Errors
    /// [`RequestError::InvalidConfig`] if the outbox is that of another domain.
    pub fn new(domain: &Domain, outbox: &Outbox) -> Result<Self> {
        check_domain(outbox, domain)?;
        let handles = OpenHandles::new(domain);
        let inner = Inner { domain: domain.clone(), outbox: outbox.clone(), handles };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Writes a document if the condition holds, and logs the updates with it: all of that, or nothing.
    ///
    /// # Errors
    /// [`RequestError::Invalid`] before anything is read, if an operation can never be carried out;
    /// [`RequestError::Refused`] if the condition does not hold or the change does not fit; [`RequestError::Outbox`] if too many
    /// updates of a document wait; the engine's, also for a collection that does not exist. Of the kind `Unknown` it may have
    /// happened: read the document again, for the updates are logged if it is written.
    ///
    /// # Cancel safety
    /// Dropped, it is done or not, whole in either case.
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

/// The condition and the change, once all operations may be carried out.
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

/// The updates by the queues of their documents.
fn log(write: &DependentWrite, handles: &Handles) -> Result<BTreeMap<String, Logged>> {
    let mut logged = BTreeMap::new();
    for update in &write.updates {
        let target = update.target();
        let Some(handle) = handles.get(&target.collection) else {
            return Err(RequestError::Invalid(format!("{} is not open", target.collection)));
        };
        let key = handle.raw.key(crate::apply::id_of(target));
        let behind = write.change.target().clone();
        let empty = || Logged { format: Format, behind, operations: Vec::new() };
        logged.entry(queue_of(&key)).or_insert_with(empty).operations.push(update.clone());
    }
    Ok(logged)
}

/// The key of the queue of a document: its name, or, if that is too long or has what no key may have, its beginning and
/// a hash of it.
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
            return Err(Failure::passing(format!("{topic:?} is no topic of dependent updates")));
        }
        let logged = match Versioned::<Logged, NEWEST>::decode(event.payload.get()) {
            Ok(Stored::Known(logged)) => logged,
            Ok(Stored::Newer(format)) => {
                let document = format!("the event {}", event.id);
                return Err(Failure::passing(OutboxError::NewerFormat { document, format }));
            }
            // What it says may hold what stands there.
            Err(_) => return Err(Failure::hopeless("the payload is no update of a document")),
        };
        let handles = self.inner.handles.of(&logged.operations).await.map_err(failure)?;
        delivery
            .transact::<_, Failure, _>(async |tx| {
                let done = carry_out(tx, &handles, &logged.operations, MOST_COPIED).await;
                done.map(drop).map_err(|stop| match stop {
                    Stop::Refused(refusal) => Failure::hopeless(*refusal),
                    Stop::Engine(error) => error.into(),
                })
            })
            .await
    }
}

/// What the engine and the store say is told apart by the outbox.
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
    fn every_document_has_a_queue_whatever_its_name() {
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
