//! Those who wait for a lock within one process: one after the other, in the order in which they came. So only one of
//! them asks the store, and the next is woken when it is given back.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use crate::model::LockName;

/// The turn of one caller at one lock: others of this process wait until it is dropped.
pub(crate) type Turn = OwnedMutexGuard<()>;

/// The queues of all locks that somebody in this process holds or waits for.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    queues: Mutex<BTreeMap<LockName, Weak<tokio::sync::Mutex<()>>>>,
    waiting: Arc<Mutex<usize>>,
}

/// One caller that waits.
#[derive(Debug)]
pub(crate) struct Waiting(Arc<Mutex<usize>>);

impl Drop for Waiting {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
    }
}

impl Queues {
    /// Counts a caller in, unless as many wait as may: then how many.
    pub(crate) fn enter(&self, most: usize) -> Result<Waiting, usize> {
        let mut waiting = self.waiting.lock();
        if *waiting >= most {
            return Err(*waiting);
        }
        *waiting += 1;
        Ok(Waiting(self.waiting.clone()))
    }

    /// The queue of a lock.
    pub(crate) fn of(&self, name: &LockName) -> Arc<tokio::sync::Mutex<()>> {
        let mut queues = self.queues.lock();
        if let Some(queue) = queues.get(name).and_then(Weak::upgrade) {
            return queue;
        }
        queues.retain(|_, queue| queue.strong_count() > 0);
        let queue = Arc::new(tokio::sync::Mutex::new(()));
        queues.insert(name.clone(), Arc::downgrade(&queue));
        queue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn queues_are_shared_while_somebody_uses_them_and_forgotten_afterwards() {
        let queues = Queues::default();
        let (a, b) = (LockName::new("c", "a").unwrap(), LockName::new("c", "b").unwrap());
        let turn = queues.of(&a).lock_owned().await;
        assert!(queues.of(&a).try_lock_owned().is_err());
        drop(turn);
        assert!(queues.of(&a).try_lock_owned().is_ok());
        let _turn = queues.of(&b).lock_owned().await;
        assert_eq!(queues.queues.lock().len(), 1);
    }

    #[test]
    fn no_more_wait_than_may() {
        let queues = Queues::default();
        let (one, _two) = (queues.enter(2).unwrap(), queues.enter(2).unwrap());
        assert_eq!(queues.enter(2).unwrap_err(), 2);
        drop(one);
        assert!(queues.enter(2).is_ok());
    }
}
