//! Handlers of events.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use txn_core::{Domain, Options, Transaction, TransactionFn};

use crate::error::OutboxError;
use crate::queue::event::Event;
use crate::queue::source::{Claim, EventSource};

/// Handles events: a type, or a closure `|delivery: Delivery| async move { … }`.
///
/// Events of one queue arrive one after the other. A delivery repeats until the event is handled:
/// after a crash, or after a store did not answer. Effects outside of [`Delivery::transact`] may
/// therefore happen twice. The processor drops a handler that exceeds its limit or loses its shard.
/// A panic is a failure.
///
/// A handler must not block its thread. Synchronous clients and long computations belong into
/// `tokio::task::spawn_blocking`. A blocking handler delays the other handlers of its runtime, and
/// cannot be dropped.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Handles one event.
    ///
    /// # Errors
    /// The reason why the event was not handled. See [`Failure`].
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

/// The delivery of an event to its handler.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub(crate) event: Event,
    pub(crate) claim: Claim,
    pub(crate) domain: Domain,
    pub(crate) source: Arc<dyn EventSource>,
    pub(crate) limit: Duration,
    /// Set once a transaction has taken the event.
    pub(crate) taken: Arc<OnceLock<Taken>>,
}

/// The result of a transaction that took an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// The number of events that then waited in the queue, if known.
    pub(crate) waiting: Option<u64>,
}

impl Delivery {
    /// The event to handle, the first of its queue.
    #[must_use]
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// The claim on the shard. The token of the claim fences effects outside of the domain.
    #[must_use]
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// How long the handler may take. After this time the handler is dropped and has failed.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Handles the event in one transaction of the domain.
    ///
    /// The writes of the closure happen exactly once: they commit together with the removal of the
    /// event, and only while the processor holds the shard. Call this method once per delivery.
    ///
    /// # Errors
    /// [`OutboxError::Lock`] if the shard is lost, [`OutboxError::NotNext`] if the event was
    /// already handled: return both. The error of the closure, or an error of the engine.
    pub async fn transact<T, E, F>(&self, closure: F) -> Result<T, E>
    where
        T: Send,
        F: for<'t> TransactionFn<'t, T, E> + Sync,
        E: From<OutboxError> + From<txn_core::Error> + Send,
    {
        self.run(&Options::default(), closure).await
    }

    /// As [`Delivery::transact`], with options of the transaction.
    ///
    /// # Errors
    /// As [`Delivery::transact`].
    pub async fn run<T, E, F>(&self, options: &Options, closure: F) -> Result<T, E>
    where
        T: Send,
        F: for<'t> TransactionFn<'t, T, E> + Sync,
        E: From<OutboxError> + From<txn_core::Error> + Send,
    {
        let done = self
            .domain
            .run(options, async |tx: &Transaction| {
                self.claim.check(tx).await?;
                let waiting = self.source.take(tx, &self.event).await?;
                Ok::<_, E>((closure(tx).await?, Taken { waiting }))
            })
            .await?;
        let (value, taken) = done.value;
        // The event is taken once, also if the handler calls this method again.
        let _ = self.taken.set(taken);
        Ok(value)
    }
}

/// The reason why an event was not handled. `?` converts any error.
pub struct Failure {
    pub(crate) kind: FailureKind,
    /// The minimum pause before the retry.
    pub(crate) pause: Duration,
    error: Box<dyn std::error::Error + Send + Sync>,
}

/// The effect of a failure on the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The failure counts towards the limit.
    Counted,
    /// The failure has a cause outside of the event. Retries are unlimited.
    Transient,
    /// A retry cannot succeed.
    Permanent,
    /// Another processor has the shard, or handled the event.
    Superseded,
}

impl Failure {
    /// A failure by an outage: retried without a limit, and not counted.
    ///
    /// The event is sound, but a service that its handler needs is down. Pauses grow, and the queue
    /// of the event waits.
    pub fn transient(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::new(FailureKind::Transient, error)
    }

    /// A final failure: the event becomes a dead letter at once.
    pub fn permanent(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::new(FailureKind::Permanent, error)
    }

    /// A counted failure with a retry after `pause` at the earliest.
    ///
    /// Use this if the receiver asked for a pause. Another process that takes the shard over
    /// ignores the pause.
    pub fn not_before(
        error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
        pause: Duration,
    ) -> Self {
        Self::counted(error).after(pause)
    }

    /// Delays the retry by at least `pause`.
    ///
    /// Another process that takes the shard over ignores the pause.
    #[must_use]
    pub fn after(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    pub(crate) fn counted(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::new(FailureKind::Counted, error)
    }

    fn new(kind: FailureKind, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { kind, pause: Duration::ZERO, error: error.into() }
    }
}

/// Converts an error by the first known error in its chain.
///
/// Known errors are those of the outbox and of the engine. An outage does not count. Any other
/// error counts.
impl<E: std::error::Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut kind = None;
        let mut next: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        while let (None, Some(at)) = (kind, next) {
            kind = known_kind(at);
            next = at.source();
        }
        Self::new(kind.unwrap_or(FailureKind::Counted), error)
    }
}

/// The kind of an error that does not count.
fn known_kind(error: &(dyn std::error::Error + 'static)) -> Option<FailureKind> {
    let of_outbox = error
        .downcast_ref::<OutboxError>()
        .or_else(|| error.downcast_ref::<Box<OutboxError>>().map(|boxed| &**boxed));
    let of_engine = match of_outbox {
        Some(OutboxError::NotNext(_) | OutboxError::Lock(_)) => {
            return Some(FailureKind::Superseded);
        }
        #[cfg(feature = "postgres")]
        Some(OutboxError::TokensRestarted { .. }) => return Some(FailureKind::Transient),
        Some(OutboxError::Engine(error)) => Some(error),
        Some(error) => return error.is_transient_or_unknown().then_some(FailureKind::Transient),
        None => error
            .downcast_ref::<txn_core::Error>()
            .or_else(|| error.downcast_ref::<Box<txn_core::Error>>().map(|boxed| &**boxed)),
    };
    // Errors of the store concern every event, so they do not count.
    let is_of_store = |error: &&txn_core::Error| {
        error.kind().is_transient_or_unknown() || error.kind() == txn_core::ErrorKind::Misconfigured
    };
    of_engine.filter(is_of_store).map(|_| FailureKind::Transient)
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

#[cfg(test)]
mod tests {
    use txn_core::Error;
    use txn_core::store::{StoreError, StoreErrorKind};
    use txn_lock::{LockError, LockName, Loss};

    use super::*;

    /// An error of an application that wraps another error.
    #[derive(Debug, thiserror::Error)]
    #[error("the application's own")]
    struct Wrapped<E: std::error::Error + 'static>(#[source] E);

    fn kind(error: impl std::error::Error + Send + Sync + 'static) -> FailureKind {
        Failure::from(error).kind
    }

    #[test]
    fn nested_outage_does_not_count_as_a_failure() {
        let lost = || {
            let lock = LockName::new("test", "one").expect("a name");
            OutboxError::Lock(LockError::Lost { lock, token: 1, why: Loss::Taken })
        };
        assert_eq!(kind(lost()), FailureKind::Superseded);
        assert_eq!(kind(Wrapped(Wrapped(lost()))), FailureKind::Superseded);
        assert_eq!(kind(Wrapped(Box::new(lost()))), FailureKind::Superseded);
        let not_next = OutboxError::NotNext("orders/1/a".to_owned());
        assert_eq!(kind(Wrapped(not_next)), FailureKind::Superseded);
        for of in [StoreErrorKind::Unavailable, StoreErrorKind::Misconfigured] {
            let error = || Error::from(StoreError::new(of, "it cannot be reached"));
            assert_eq!(kind(error()), FailureKind::Transient, "{of:?}");
            assert_eq!(kind(Wrapped(error())), FailureKind::Transient, "{of:?}");
            assert_eq!(kind(Wrapped(Box::new(error()))), FailureKind::Transient, "{of:?}");
            let of_outbox = OutboxError::Engine(error());
            assert_eq!(kind(Wrapped(of_outbox)), FailureKind::Transient, "{of:?}");
        }
        let sound = Wrapped(OutboxError::NotFound("x".to_owned()));
        assert_eq!(kind(sound), FailureKind::Counted);
        let damaged =
            Error::from(StoreError::new(StoreErrorKind::Damaged, "a document is damaged"));
        assert_eq!(kind(Wrapped(damaged)), FailureKind::Counted);
        assert_eq!(kind(Wrapped(std::io::Error::other("it failed"))), FailureKind::Counted);
    }
}
