//! A handler for each topic.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::error::{OutboxError, Result};
use crate::handler::Handler;
use crate::name::QueueName;
use crate::together::{Alone, EventFn, Together, WithState};

/// What a processor handles: the topics that it knows, each with its handler. It holds shards of these topics alone, so that
/// processors of one source may know different ones. Events of a topic that nobody knows wait, and hold up no other.
#[derive(Clone, Default)]
pub struct Topics(BTreeMap<Arc<str>, Registered>);

/// The handler of a topic.
#[derive(Clone)]
struct Registered {
    handler: Arc<dyn Handler>,
    together: Option<Arc<dyn Together>>,
}

impl Topics {
    /// No topic.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the handler of a topic, in place of the one that it had.
    #[must_use]
    pub fn with(mut self, topic: &str, handler: impl Handler) -> Self {
        let registered = Registered { handler: Arc::new(handler), together: None };
        self.0.insert(topic.into(), registered);
        self
    }

    /// Adds a handler whose effects are all in the transaction that takes the event, in place of
    /// the one that the topic had.
    ///
    /// Waiting events of one key are handled in their order in one transaction, at most
    /// [`ProcessorConfig::batch`](crate::ProcessorConfig::batch) at a time, so that many events
    /// cost few commits. If the transaction fails, its events are handled one by one, and the event
    /// that fails is treated as any failed event. The transaction may run the closure more than
    /// once: effects outside of `tx` may happen several times. The closure captures nothing, and
    /// gets `state` with each call.
    ///
    /// [`ProcessorConfig::limit`](crate::ProcessorConfig::limit) bounds the whole transaction.
    #[must_use]
    pub fn with_transaction<S, F>(mut self, topic: &str, state: S, handle: F) -> Self
    where
        S: Send + Sync + 'static,
        F: for<'t> EventFn<'t, S> + Send + Sync + 'static,
    {
        let together: Arc<dyn Together> = Arc::new(WithState { state, handle });
        let handler = Arc::new(Alone(together.clone()));
        self.0.insert(topic.into(), Registered { handler, together: Some(together) });
        self
    }

    /// Their names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.keys()
    }

    /// The handler of a topic.
    pub(crate) fn handler(&self, topic: &str) -> Option<&dyn Handler> {
        self.0.get(topic).map(|registered| &*registered.handler)
    }

    /// The handler of a topic, if it handles several events in one transaction.
    pub(crate) fn together(&self, topic: &str) -> Option<&dyn Together> {
        self.0.get(topic)?.together.as_deref()
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.0.is_empty() {
            return Err(OutboxError::InvalidConfig("the processor knows no topic"));
        }
        self.0.keys().try_for_each(|topic| QueueName::new(topic, "any").map(drop))
    }
}

impl fmt::Debug for Topics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Topics").field(&self.0.keys()).finish()
    }
}
