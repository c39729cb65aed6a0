//! A handler for each topic.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;

use crate::handler::{Delivery, Failure, Handler};

/// Hands each event to the handler of its topic. One whose topic has none waits, without counting as failed, for a processor
/// that has: as when a newer version of a program begins to emit it.
///
/// Processors of one outbox share its shards whatever they know, and one that has a shard keeps it: in the end every one of them has
/// to know every topic, or what it does not know waits as long as it lives.
#[derive(Default)]
pub struct Topics(BTreeMap<String, Box<dyn Handler>>);

impl Topics {
    /// No topic.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the handler of a topic, in place of the one that it had.
    #[must_use]
    pub fn with(mut self, topic: &str, handler: impl Handler) -> Self {
        self.0.insert(topic.to_owned(), Box::new(handler));
        self
    }
}

impl fmt::Debug for Topics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Topics").field(&self.0.keys()).finish()
    }
}

#[async_trait]
impl Handler for Topics {
    async fn handle(&self, delivery: Delivery) -> Result<(), Failure> {
        let topic = delivery.event().queue.topic();
        match self.0.get(topic) {
            Some(handler) => handler.handle(delivery).await,
            None => Err(Failure::passing(format!("nothing here handles the topic {topic:?}"))),
        }
    }
}
