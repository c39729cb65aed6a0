//! What was emitted in this process, told to its processors at once.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::name::QueueName;

/// Most queues that are remembered for a processor. What does not fit is found by a look.
const MOST_FRESH: usize = 1_000;

/// Tells the processors of this process to which queues it emitted: they look at them at once.
#[derive(Debug, Default)]
pub struct Fresh {
    listeners: Mutex<Vec<Weak<Listener>>>,
}

impl Fresh {
    /// Events of this queue were committed.
    pub fn add(&self, queue: &QueueName) {
        for listener in self.listeners() {
            listener.offer(queue);
        }
    }

    /// Lets processors look again.
    pub fn wake(&self) {
        for listener in self.listeners() {
            listener.wake();
        }
    }

    /// Hears of everything that comes from now on, as far as it is one's own.
    pub(crate) fn listen(
        &self,
        is_ours: impl Fn(&QueueName) -> bool + Send + Sync + 'static,
    ) -> Arc<Listener> {
        let (queues, woken) = (Mutex::default(), Notify::new());
        let listener = Arc::new(Listener { is_ours: Box::new(is_ours), queues, woken });
        self.listeners.lock().push(Arc::downgrade(&listener));
        listener
    }

    fn listeners(&self) -> Vec<Arc<Listener>> {
        let mut listeners = self.listeners.lock();
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.iter().filter_map(Weak::upgrade).collect()
    }
}

/// What a processor heard and did not look at yet. Queues of others take no room in it.
pub(crate) struct Listener {
    is_ours: Box<dyn Fn(&QueueName) -> bool + Send + Sync>,
    queues: Mutex<BTreeSet<QueueName>>,
    woken: Notify,
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("queues", &self.queues).finish_non_exhaustive()
    }
}

impl Listener {
    fn offer(&self, queue: &QueueName) {
        if !(self.is_ours)(queue) {
            return;
        }
        let mut queues = self.queues.lock();
        if queues.len() < MOST_FRESH {
            queues.insert(queue.clone());
        }
        drop(queues);
        self.wake();
    }

    /// Lets this processor look again.
    pub(crate) fn wake(&self) {
        self.woken.notify_one();
    }

    /// Takes out what was heard.
    pub(crate) fn take(&self) -> BTreeSet<QueueName> {
        std::mem::take(&mut *self.queues.lock())
    }

    /// Returns once there was something to hear since the last call. Cancel safe.
    pub(crate) async fn heard(&self) {
        self.woken.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn queues_of_others_take_no_room() {
        let (fresh, name) = (Fresh::default(), |key: &str| QueueName::new("t", key).unwrap());
        let ours = fresh.listen(|name| name.key().starts_with("ours"));
        let theirs = fresh.listen(|name| name.key().starts_with("theirs"));
        for at in 0..2 * MOST_FRESH {
            fresh.add(&name(&format!("theirs-{at}")));
        }
        fresh.add(&name("ours"));
        ours.heard().await;
        assert_eq!(ours.take(), BTreeSet::from([name("ours")]));
        assert_eq!((ours.take().len(), theirs.take().len()), (0, MOST_FRESH));
        drop(theirs);
        assert_eq!(fresh.listeners().len(), 1);
    }
}
