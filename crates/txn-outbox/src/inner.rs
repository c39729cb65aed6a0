//! What all tasks of a processor share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use txn_core::Domain;
use txn_core::clock::Clock;
use txn_lock::LockService;

use crate::config::ProcessorConfig;
use crate::figures::Counters;
use crate::handler::Handler;
use crate::name::QueueName;
use crate::shards::Shards;
use crate::source::EventSource;

/// What all tasks of a processor share.
pub(crate) struct Inner {
    pub(crate) domain: Domain,
    pub(crate) source: Arc<dyn EventSource>,
    pub(crate) config: ProcessorConfig,
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) locks: LockService,
    pub(crate) shards: Shards,
    /// The queues that are worked on; whether events came meanwhile.
    pub(crate) working: Mutex<BTreeMap<QueueName, bool>>,
    /// When those may be looked at again that failed, on the monotonic clock.
    pub(crate) deferred: Mutex<BTreeMap<QueueName, Duration>>,
    pub(crate) counters: Counters,
    pub(crate) room: Arc<Semaphore>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Processor").field("source", &self.source.name()).finish_non_exhaustive()
    }
}

impl Inner {
    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.domain.config().clock
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock().monotonic()
    }

    /// The queues whose pause is over.
    pub(crate) fn due(&self) -> Vec<QueueName> {
        let now = self.now();
        let mut deferred = self.deferred.lock();
        let due = deferred.iter().filter(|(_, until)| **until <= now);
        let due: Vec<QueueName> = due.map(|(name, _)| name.clone()).collect();
        for name in &due {
            deferred.remove(name);
        }
        due
    }

    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.deferred.lock().values().min().copied()
    }

    /// Whether a queue may be taken up now. One that is worked on is looked at once more.
    pub(crate) fn may_take(&self, name: &QueueName) -> bool {
        if let Some(again) = self.working.lock().get_mut(name) {
            *again = true;
            return false;
        }
        let mut deferred = self.deferred.lock();
        match deferred.get(name) {
            Some(until) if *until > self.now() => false,
            Some(_) => {
                deferred.remove(name);
                true
            }
            None => true,
        }
    }
}
