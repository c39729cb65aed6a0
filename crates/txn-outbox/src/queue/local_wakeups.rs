//! Local wake-ups inside a process.
//!
//! A commit passes its events to the processors of its own process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::processing::shards::Shards;
use crate::queue::event::Event;
use crate::queue::name::QueueName;
use crate::queue::shard::{Shard, choose_number};

/// The maximum number of remembered queues per processor. Polls find the rest.
const MOST_QUEUES: usize = 1_000;

/// The maximum number of bytes of remembered payloads per processor.
///
/// Processors read the payloads of further events from the source.
const MOST_BYTES: usize = 4 << 20;

/// Passes emitted queues to the processors of this process at once.
#[derive(Debug, Default)]
pub struct LocalWakeups {
    listeners: Mutex<Vec<Weak<Listener>>>,
}

impl LocalWakeups {
    /// Passes on a queue with new committed events in this shard.
    pub fn notify(&self, queue: &QueueName, shard: &Shard) {
        self.notify_with_event(queue, shard, None);
    }

    /// As [`LocalWakeups::notify`], with a new committed event of the queue.
    pub(crate) fn notify_with_event(
        &self,
        queue: &QueueName,
        shard: &Shard,
        event: Option<&Event>,
    ) {
        for listener in self.listeners() {
            listener.offer(queue, shard, event);
        }
    }

    /// Chooses the shard of a queue at its first event.
    ///
    /// Prefers the shards that this process holds.
    pub(crate) fn choose_shard(&self, queue: &QueueName, shards: u16) -> Shard {
        let own = queue.shard(shards);
        let held = self.listeners().into_iter().flat_map(|listener| listener.shards.held());
        let held =
            held.filter(|shard| shard.topic == own.topic).map(|shard| shard.number).collect();
        Shard { number: choose_number(own.number, &held), ..own }
    }

    /// Whether a processor of this process holds the shard.
    pub(crate) fn has_listener(&self, shard: &Shard) -> bool {
        self.listeners().iter().any(|listener| listener.shards.has(shard))
    }

    /// Wakes all processors of this process.
    pub fn wake(&self) {
        for listener in self.listeners() {
            listener.wake();
        }
    }

    /// Registers a listener for the queues in these shards.
    pub(crate) fn listen(&self, shards: Arc<Shards>) -> Arc<Listener> {
        let (queues, wakeup) = (Mutex::default(), Notify::new());
        let listener = Arc::new(Listener { shards, queues, wakeup });
        self.listeners.lock().push(Arc::downgrade(&listener));
        listener
    }

    fn listeners(&self) -> Vec<Arc<Listener>> {
        let mut listeners = self.listeners.lock();
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.iter().filter_map(Weak::upgrade).collect()
    }
}

/// The new queues of a processor, from its own shards only.
pub(crate) struct Listener {
    shards: Arc<Shards>,
    queues: Mutex<WokenQueues>,
    wakeup: Notify,
}

#[derive(Debug, Default)]
struct WokenQueues {
    /// The new events of each queue, as far as they are remembered.
    events: BTreeMap<QueueName, Vec<Event>>,
    /// The number of bytes of the payloads.
    bytes: usize,
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("queues", &self.queues).finish_non_exhaustive()
    }
}

impl Listener {
    fn offer(&self, queue: &QueueName, shard: &Shard, event: Option<&Event>) {
        if !self.shards.has(shard) {
            return;
        }
        self.queues.lock().add(queue, event);
        self.wake();
    }

    /// Wakes this processor.
    pub(crate) fn wake(&self) {
        self.wakeup.notify_one();
    }

    /// Removes and returns the queues, with their new events.
    ///
    /// The events may be incomplete, and in any order.
    pub(crate) fn take(&self) -> BTreeMap<QueueName, Vec<Event>> {
        std::mem::take(&mut *self.queues.lock()).events
    }

    /// Waits for the next wake-up. Cancel safe.
    pub(crate) async fn woken(&self) {
        self.wakeup.notified().await;
    }
}

impl WokenQueues {
    fn add(&mut self, queue: &QueueName, event: Option<&Event>) {
        if self.events.len() >= MOST_QUEUES && !self.events.contains_key(queue) {
            return;
        }
        let events = self.events.entry(queue.clone()).or_default();
        if let Some(event) = event {
            let bytes = event.payload.get().len();
            if self.bytes + bytes <= MOST_BYTES {
                self.bytes += bytes;
                events.push(event.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use txn_core::store::MemoryStore;
    use txn_core::{Config, Domain};
    use txn_lock::{LockConfig, LockService};

    use super::*;

    fn shard(number: u16) -> Shard {
        Shard { topic: "t".into(), number }
    }

    /// The shards of a process, each under its own lock.
    async fn held(locks: &LockService, numbers: &[u16]) -> Arc<Shards> {
        let shards = Arc::new(Shards::default());
        for number in numbers {
            let guard = locks.try_lock("shard", &number.to_string()).await.unwrap();
            shards.add(shard(*number), guard.expect("it is free"));
        }
        shards
    }

    async fn locks() -> LockService {
        let config = Config::default().with_janitor_interval(None);
        let domain =
            Domain::open_or_create(Arc::new(MemoryStore::new()), "test", config).await.unwrap();
        LockService::open(&domain, LockConfig::default()).await.unwrap()
    }

    #[tokio::test]
    async fn queues_of_other_shards_are_not_remembered() {
        let (wakeups, locks) = (LocalWakeups::default(), locks().await);
        let name = |key: &str| QueueName::new("t", key).unwrap();
        let ours = wakeups.listen(held(&locks, &[1, 2]).await);
        let theirs = wakeups.listen(held(&locks, &[3]).await);
        for at in 0..2 * MOST_QUEUES {
            wakeups.notify(&name(&format!("theirs-{at}")), &shard(3));
        }
        wakeups.notify(&name("ours"), &shard(2));
        ours.woken().await;
        assert_eq!(ours.take().into_keys().collect::<Vec<_>>(), [name("ours")]);
        assert_eq!((ours.take().len(), theirs.take().len()), (0, MOST_QUEUES));
        drop(theirs);
        assert_eq!(wakeups.listeners().len(), 1);
    }

    #[test]
    fn remembered_payloads_are_bounded() {
        let payload = format!("\"{}\"", "x".repeat(MOST_BYTES / 3));
        let event = |queue: &QueueName, sequence| {
            let payload = serde_json::value::RawValue::from_string(payload.clone()).unwrap();
            Event::new(queue.event_id(sequence), queue.clone(), sequence, 0, 0, payload)
        };
        let (one, other) =
            (QueueName::new("t", "one").unwrap(), QueueName::new("t", "other").unwrap());
        let mut queues = WokenQueues::default();
        for sequence in 1..=3 {
            queues.add(&one, Some(&event(&one, sequence)));
        }
        queues.add(&other, Some(&event(&other, 1)));
        queues.add(&other, None);
        let remembered: Vec<usize> = queues.events.values().map(Vec::len).collect();
        assert_eq!(remembered, [2, 0], "both queues are known");
    }

    #[tokio::test]
    async fn queues_are_placed_into_shards_of_this_process() {
        let (wakeups, locks) = (LocalWakeups::default(), locks().await);
        let names: Vec<QueueName> =
            (0..50).map(|at| QueueName::new("t", &format!("k{at}")).unwrap()).collect();
        let chosen =
            || names.iter().map(|name| wakeups.choose_shard(name, 8)).collect::<BTreeSet<Shard>>();
        assert_eq!(chosen(), (0..8).map(shard).collect(), "no processor is here");
        let listeners =
            [wakeups.listen(held(&locks, &[1, 2]).await), wakeups.listen(held(&locks, &[5]).await)];
        assert_eq!(chosen(), [1, 2, 5].map(shard).into());
        drop(listeners);
        assert_eq!(chosen().len(), 8);
    }
}
