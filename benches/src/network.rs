//! A store behind a network, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use txn_core::store::{Key, MemoryStore, Outcome, Refusal, RefusalKind, Write};
use txn_sim::{Call, Fate, Scripted, Step};

/// The duration of requests, and the state of one collection.
#[derive(Clone, Copy, Debug)]
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
    pub fn before(self, store: Arc<MemoryStore>) -> Scripted {
        let distant = Scripted::new(store);
        distant.before(move |call| match call.has(|_| true) {
            true => Step::delay(self.duration(call)),
            false => Step::pass(),
        });
        distant.play(move |write| self.refusal(write).map_or(Fate::Pass, Fate::RefuseWith));
        distant
    }

    fn duration(self, call: Call<'_>) -> Duration {
        match self.cold {
            Some((_, Cold::Slow(time))) if call.has(|key| self.is_cold(key)) => {
                time.max(self.request)
            }
            _ => self.request,
        }
    }

    fn is_cold(self, key: &Key) -> bool {
        self.cold.is_some_and(|(collection, _)| *key.collection == *collection)
    }

    fn refusal(self, write: &Write) -> Option<Outcome> {
        let (_, cold) = self.cold.filter(|_| self.is_cold(&write.key))?;
        match cold {
            Cold::Blocked if write.op.changes() => {
                Some(Outcome::RejectedInDoubt("index blocked".to_owned()))
            }
            Cold::Blocked => refused(RefusalKind::Blocked, "index blocked"),
            Cold::Unmapped => refused(RefusalKind::Document, "a field has no mapping"),
            Cold::Sound | Cold::Slow(_) => None,
        }
    }
}

fn refused(kind: RefusalKind, reason: &str) -> Option<Outcome> {
    Some(Outcome::Invalid(Refusal { kind, reason: reason.to_owned() }))
}
