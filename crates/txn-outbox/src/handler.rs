//! What handles events.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use txn_core::{Domain, Transaction, TransactionFn};

use crate::error::{OutboxError, engine_passes};
use crate::event::Event;
use crate::source::{Claim, EventSource};

/// Handles events: a type of yours, or a closure `|delivery: Delivery| async move { … }`.
///
/// Events of one queue come one after the other, and one comes again until it was handled, so whatever is done outside of
/// [`Delivery::transact`] may be done twice: after a crash, or when a store did not answer. A handler that takes too long
/// is dropped, and so is one whose shard is lost; a panic is a failure.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Handles one event.
    ///
    /// # Errors
    /// Whatever keeps it from being handled: see [`Failure`].
    async fn handle(&self, delivery: Delivery) -> Result<(), Failure>;
}

#[async_trait]
impl<F, R> Handler for F
where
    F: Fn(Delivery) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), Failure>> + Send,
{
    async fn handle(&self, delivery: Delivery) -> Result<(), Failure> {
        self(delivery).await
    }
}

/// An event, handed to its handler.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub(crate) event: Event,
    pub(crate) claim: Claim,
    pub(crate) domain: Domain,
    pub(crate) source: Arc<dyn EventSource>,
    /// Whether a transaction took it.
    pub(crate) taken: Arc<AtomicBool>,
}

impl Delivery {
    /// The event.
    #[must_use]
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// The holding of the shard under which it is handled: its token fences effects elsewhere.
    #[must_use]
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Handles the event in one transaction of the domain: what the closure does happens exactly once, together with the
    /// event being handled, and only while the shard is held. Call it once.
    ///
    /// # Errors
    /// [`OutboxError::Lock`] if the shard is lost, [`OutboxError::NotNext`] if the event was handled before: pass both on.
    /// The closure's own error, or one of the engine.
    pub async fn transact<T, E, F>(&self, closure: F) -> Result<T, E>
    where
        T: Send,
        F: for<'t> TransactionFn<'t, T, E> + Sync,
        E: From<OutboxError> + From<txn_core::Error> + Send,
    {
        let done = self
            .domain
            .transact(async |tx: &Transaction| {
                self.claim.check(tx).await?;
                self.source.take(tx, &self.event).await?;
                closure(tx).await
            })
            .await?;
        self.taken.store(true, Ordering::Release);
        Ok(done)
    }
}

/// Why an event was not handled. Any error becomes one by `?`.
pub struct Failure {
    pub(crate) kind: FailureKind,
    error: Box<dyn std::error::Error + Send + Sync>,
}

/// What a failure means for the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// It counts.
    Counted,
    /// It says nothing of the event: it is tried again for as long as it takes.
    Passing,
    /// Trying again is of no use.
    Hopeless,
    /// Others have the shard, or handled it.
    NotOurs,
}

impl Failure {
    /// The event is sound, and cannot be handled now: what it needs is down. It is tried again with growing pauses for
    /// as long as it takes, and its queue waits.
    pub fn passing(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { kind: FailureKind::Passing, error: error.into() }
    }

    /// The event can never be handled: it is set aside at once.
    pub fn hopeless(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { kind: FailureKind::Hopeless, error: error.into() }
    }

    pub(crate) fn counted(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { kind: FailureKind::Counted, error: error.into() }
    }
}

/// An error of the engine that passes by itself does not count, and any other does.
impl<E: std::error::Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let any: &dyn std::error::Error = &error;
        let of_engine = any.downcast_ref::<txn_core::Error>().map(engine_passes);
        let kind = match any.downcast_ref::<OutboxError>() {
            Some(OutboxError::NotNext(_) | OutboxError::Lock(_)) => FailureKind::NotOurs,
            Some(error) if error.passes() => FailureKind::Passing,
            _ if of_engine == Some(true) => FailureKind::Passing,
            _ => FailureKind::Counted,
        };
        Self { kind, error: Box::new(error) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)?;
        let mut source = self.error.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure").field("kind", &self.kind).field("error", &self.error).finish()
    }
}
