//! A handler for each topic.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::error::{OutboxError, Result};
use crate::handler::Handler;
use crate::name::QueueName;

/// What a processor handles: the topics that it knows, each with its handler. It holds shards of these topics alone, so that
/// processors of one source may know different ones. Events of a topic that nobody knows wait, and hold up no other.
#[derive(Clone, Default)]
pub struct Topics(BTreeMap<Arc<str>, Arc<dyn Handler>>);

impl Topics {
    /// No topic.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the handler of a topic, in place of the one that it had.
    #[must_use]
    pub fn with(mut self, topic: &str, handler: impl Handler) -> Self {
        self.0.insert(topic.into(), Arc::new(handler));
        self
    }

    /// Their names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.keys()
    }

    /// The handler of a topic.
    pub(crate) fn handler(&self, topic: &str) -> Option<&dyn Handler> {
        self.0.get(topic).map(|handler| &**handler)
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
