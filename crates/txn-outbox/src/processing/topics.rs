//! The handlers of a processor, by topic.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::error::{OutboxError, Result};
use crate::handler::Handler;
use crate::processing::batch_handler::{BatchHandler, EventFn, SingleEvent, WithState};
use crate::queue::name::QueueName;

/// The topics of a processor, each with its handler.
///
/// A processor holds shards of these topics only, so processors of one source may have different
/// topics. Events of a topic without a processor wait, and delay no other topic.
#[derive(Clone, Default)]
pub struct Topics(BTreeMap<Arc<str>, Registered>);

/// The handler of a topic.
#[derive(Clone)]
struct Registered {
    handler: Arc<dyn Handler>,
    batch_handler: Option<Arc<dyn BatchHandler>>,
}

impl Topics {
    /// Creates an empty set of topics.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the handler of a topic.
    #[must_use]
    pub fn with(mut self, topic: &str, handler: impl Handler) -> Self {
        let registered = Registered { handler: Arc::new(handler), batch_handler: None };
        self.0.insert(topic.into(), registered);
        self
    }

    /// Sets a handler with all effects in the event's transaction.
    ///
    /// The handler receives the waiting events of one key in their order. A transaction takes at
    /// most [`ProcessorConfig::batch`](crate::ProcessorConfig::batch) of them, so that many events
    /// cost few commits. If the transaction fails, its events run one by one, and only the failing
    /// event counts as failed. The transaction may run the closure more than once, so effects
    /// outside of `tx` may happen several times. The closure captures nothing, and receives `state`
    /// with each call.
    ///
    /// [`ProcessorConfig::limit`](crate::ProcessorConfig::limit) bounds the whole transaction.
    #[must_use]
    pub fn with_transaction<S, F>(mut self, topic: &str, state: S, handle: F) -> Self
    where
        S: Send + Sync + 'static,
        F: for<'t> EventFn<'t, S> + Send + Sync + 'static,
    {
        let batch_handler: Arc<dyn BatchHandler> = Arc::new(WithState { state, handle });
        let handler = Arc::new(SingleEvent(batch_handler.clone()));
        self.0.insert(topic.into(), Registered { handler, batch_handler: Some(batch_handler) });
        self
    }

    /// The names of the topics.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.keys()
    }

    /// The handler of a topic.
    pub(crate) fn handler(&self, topic: &str) -> Option<&dyn Handler> {
        self.0.get(topic).map(|registered| &*registered.handler)
    }

    /// The handler of a topic, if it takes several events at once.
    pub(crate) fn batch_handler(&self, topic: &str) -> Option<&dyn BatchHandler> {
        self.0.get(topic)?.batch_handler.as_deref()
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
