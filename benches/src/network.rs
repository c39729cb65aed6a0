//! A store behind a network, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::sleep;
use txn_core::store::{Key, Layer, MemoryStore, Outcome, Read, Refusal, RefusalKind, Store, Write};

/// The duration of requests, and what happens to the requests of one collection.
#[derive(Clone, Debug)]
pub struct Network {
    request: Duration,
    cold: Option<(&'static str, Cold)>,
}

/// The state of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cold {
    /// Answers as the others.
    Sound,
    /// Refuses writes, as an index with a write block does.
    Blocked,
    /// Refuses the contents of writes, as an index without their fields does.
    Unmapped,
    /// Takes this long for each request.
    Slow(Duration),
}

impl Network {
    /// Creates a network in which each request takes this long.
    #[must_use]
    pub fn new(request: Duration) -> Self {
        Self { request, cold: None }
    }

    /// Sets the state of a collection.
    #[must_use]
    pub fn with_cold(mut self, collection: &'static str, cold: Cold) -> Self {
        self.cold = Some((collection, cold));
        self
    }

    /// Puts the network in front of a store.
    #[must_use]
    pub fn before(self, store: Arc<MemoryStore>) -> Distant {
        Distant { network: self, store }
    }
}

/// A store behind a [`Network`].
#[derive(Debug)]
pub struct Distant {
    network: Network,
    store: Arc<MemoryStore>,
}

impl Distant {
    async fn travel<'a>(&self, keys: impl Iterator<Item = &'a Key>) {
        let longest = keys.map(|key| match self.state(key) {
            Cold::Slow(time) => time,
            _ => Duration::ZERO,
        });
        sleep(longest.max().unwrap_or_default().max(self.network.request)).await;
    }

    fn state(&self, key: &Key) -> Cold {
        match self.network.cold {
            Some((collection, state)) if *key.collection == *collection => state,
            _ => Cold::Sound,
        }
    }

    fn refusal(&self, write: &Write) -> Option<Outcome> {
        match self.state(&write.key) {
            Cold::Blocked if write.op.changes() => {
                Some(Outcome::RejectedInDoubt("index blocked".to_owned()))
            }
            Cold::Blocked => refused(RefusalKind::Blocked, "index blocked"),
            Cold::Unmapped => refused(RefusalKind::Document, "a field has no mapping"),
            _ => None,
        }
    }
}

fn refused(kind: RefusalKind, reason: &str) -> Option<Outcome> {
    Some(Outcome::Invalid(Refusal { kind, reason: reason.to_owned() }))
}

#[async_trait]
impl Layer for Distant {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        self.travel(keys.iter()).await;
        self.store.get_many(keys).await
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        self.travel(keys.iter()).await;
        self.store.read_primary(keys).await
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        self.travel(writes.iter().map(|write| &write.key)).await;
        let refused: Vec<Option<Outcome>> =
            writes.iter().map(|write| self.refusal(write)).collect();
        let sent = writes.iter().zip(&refused).filter(|(_, refused)| refused.is_none());
        let sent: Vec<Write> = sent.map(|(write, _)| write.clone()).collect();
        let mut answers = self.store.write_many(&sent).await.into_iter();
        let answered = refused.into_iter().map(|refused| refused.or_else(|| answers.next()));
        answered.flatten().collect()
    }
}
