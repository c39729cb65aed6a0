//! What handles events.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use txn_core::{Domain, Options, Transaction, TransactionFn};

use crate::error::OutboxError;
use crate::event::Event;
use crate::source::{Claim, EventSource};

/// Handles events: a type of yours, or a closure `|delivery: Delivery| async move { … }`.
///
/// Events of one queue come one after the other, and one comes again until it was handled, so whatever is done outside of
/// [`Delivery::transact`] may be done twice: after a crash, or when a store did not answer. A handler that takes too long
/// is dropped, and so is one whose shard is lost; a panic is a failure.
///
/// A handler must not block its thread: do what does not await (a synchronous client, a long computation) in
/// `tokio::task::spawn_blocking`. A handler that blocks keeps other handlers of the runtime waiting, and cannot be dropped.
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
    pub(crate) limit: Duration,
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

    /// How long the handler may take from its beginning: then it is dropped, and has failed.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.limit
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
                self.source.take(tx, &self.event).await?;
                closure(tx).await
            })
            .await?;
        self.taken.store(true, Ordering::Release);
        Ok(done.value)
    }
}

/// Why an event was not handled. Any error becomes one by `?`.
pub struct Failure {
    pub(crate) kind: FailureKind,
    /// How long it is to be left alone at least.
    pub(crate) pause: Duration,
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
        Self::new(FailureKind::Passing, error)
    }

    /// The event can never be handled: it is set aside at once.
    pub fn hopeless(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::new(FailureKind::Hopeless, error)
    }

    /// The event failed, which counts, and is tried again no sooner than after `pause`: what it needs asked for that. Another
    /// process that takes its shard over does not know of it.
    pub fn not_before(
        error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
        pause: Duration,
    ) -> Self {
        Self::counted(error).after(pause)
    }

    /// The event is tried again no sooner than after `pause`. Another process that takes its shard over does not know of it.
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

/// An error of the outbox or of the engine that says nothing of the event does not count, however deep it is among the
/// sources, and any other does.
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

/// What an error means for the event, where that does not count.
fn known_kind(error: &(dyn std::error::Error + 'static)) -> Option<FailureKind> {
    let of_outbox = error
        .downcast_ref::<OutboxError>()
        .or_else(|| error.downcast_ref::<Box<OutboxError>>().map(|boxed| &**boxed));
    let of_engine = match of_outbox {
        Some(OutboxError::NotNext(_) | OutboxError::Lock(_)) => return Some(FailureKind::NotOurs),
        #[cfg(feature = "postgres")]
        Some(OutboxError::TokensBeganAnew { .. }) => return Some(FailureKind::Passing),
        Some(OutboxError::Engine(error)) => Some(error),
        Some(error) => return error.passes().then_some(FailureKind::Passing),
        None => error
            .downcast_ref::<txn_core::Error>()
            .or_else(|| error.downcast_ref::<Box<txn_core::Error>>().map(|boxed| &**boxed)),
    };
    // What is wrong with a store is so for every event.
    let is_of_store = |error: &&txn_core::Error| {
        error.kind().passes() || error.kind() == txn_core::ErrorKind::Misconfigured
    };
    of_engine.filter(is_of_store).map(|_| FailureKind::Passing)
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

    /// An error of an application, that wraps another.
    #[derive(Debug, thiserror::Error)]
    #[error("the application's own")]
    struct Wrapped<E: std::error::Error + 'static>(#[source] E);

    fn kind(error: impl std::error::Error + Send + Sync + 'static) -> FailureKind {
        Failure::from(error).kind
    }

    #[test]
    fn what_says_nothing_of_the_event_does_not_count_however_deep_it_is() {
        let lost = || {
            let lock = LockName::new("test", "one").expect("a name");
            OutboxError::Lock(LockError::Lost { lock, token: 1, why: Loss::Taken })
        };
        assert_eq!(kind(lost()), FailureKind::NotOurs);
        assert_eq!(kind(Wrapped(Wrapped(lost()))), FailureKind::NotOurs);
        assert_eq!(kind(Wrapped(Box::new(lost()))), FailureKind::NotOurs);
        let not_next = OutboxError::NotNext("orders/1/a".to_owned());
        assert_eq!(kind(Wrapped(not_next)), FailureKind::NotOurs);
        for of in [StoreErrorKind::Unavailable, StoreErrorKind::Misconfigured] {
            let error = || Error::from(StoreError::new(of, "it cannot be reached"));
            assert_eq!(kind(error()), FailureKind::Passing, "{of:?}");
            assert_eq!(kind(Wrapped(error())), FailureKind::Passing, "{of:?}");
            assert_eq!(kind(Wrapped(Box::new(error()))), FailureKind::Passing, "{of:?}");
            let of_outbox = OutboxError::Engine(error());
            assert_eq!(kind(Wrapped(of_outbox)), FailureKind::Passing, "{of:?}");
        }
        let sound = Wrapped(OutboxError::NotFound("x".to_owned()));
        assert_eq!(kind(sound), FailureKind::Counted);
        let damaged =
            Error::from(StoreError::new(StoreErrorKind::Damaged, "a document is damaged"));
        assert_eq!(kind(Wrapped(damaged)), FailureKind::Counted);
        assert_eq!(kind(Wrapped(std::io::Error::other("it failed"))), FailureKind::Counted);
    }
}
