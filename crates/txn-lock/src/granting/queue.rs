//! The local wait queue of a lock, in the order of arrival.
//!
//! Only the first caller sends requests to the store. A release wakes the next caller.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use crate::granting::fairness::Tenure;
use crate::records::model::LockName;

/// The exclusive right of one local caller to request a lock.
#[derive(Debug)]
pub(crate) struct Turn {
    _turn: OwnedMutexGuard<()>,
    /// Kept while a local caller holds the lock or waits for it.
    line: Arc<Line>,
}

impl Turn {
    pub(crate) fn line(&self) -> &Line {
        &self.line
    }
}

/// The callers of this process that want one lock.
#[derive(Debug, Default)]
pub(crate) struct Line {
    turns: Arc<tokio::sync::Mutex<()>>,
    waiting: AtomicUsize,
    /// The consecutive grants of this process.
    pub(crate) tenure: Mutex<Tenure>,
}

impl Line {
    /// Whether callers wait in this queue.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Waits for the turn of this caller. Cancel safe.
    pub(crate) async fn turn(self: Arc<Self>) -> Turn {
        let waits = InLine::enter(&self);
        let turn = self.turns.clone().lock_owned().await;
        drop(waits);
        Turn { _turn: turn, line: self }
    }

    /// Takes the turn, if no other caller has it.
    pub(crate) fn try_turn(self: Arc<Self>) -> Option<Turn> {
        let turn = self.turns.clone().try_lock_owned().ok()?;
        Some(Turn { _turn: turn, line: self })
    }
}

/// Counts a caller as waiting until this value is dropped.
struct InLine<'a>(&'a Line);

impl<'a> InLine<'a> {
    fn enter(line: &'a Line) -> Self {
        line.waiting.fetch_add(1, Ordering::AcqRel);
        Self(line)
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The queues of all locks that local callers hold or want.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    queues: Mutex<BTreeMap<LockName, Weak<Line>>>,
    waiting: Arc<Mutex<usize>>,
}

/// The count of one waiting caller.
#[derive(Debug)]
pub(crate) struct Waiting(Arc<Mutex<usize>>);

impl Drop for Waiting {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
    }
}

impl Queues {
    /// Counts a caller in. Returns the number of waiting callers if the limit is reached.
    pub(crate) fn enter(&self, most: usize) -> Result<Waiting, usize> {
        let mut waiting = self.waiting.lock();
        if *waiting >= most {
            return Err(*waiting);
        }
        *waiting += 1;
        Ok(Waiting(self.waiting.clone()))
    }

    /// The queue of a lock.
    pub(crate) fn of(&self, name: &LockName) -> Arc<Line> {
        let mut queues = self.queues.lock();
        if let Some(line) = queues.get(name).and_then(Weak::upgrade) {
            return line;
        }
        queues.retain(|_, line| line.strong_count() > 0);
        let line = Arc::<Line>::default();
        queues.insert(name.clone(), Arc::downgrade(&line));
        line
    }

    /// Whether a local caller holds a lock or waits for it.
    pub(crate) fn is_waited_for(&self, name: &LockName) -> bool {
        self.queues.lock().get(name).is_some_and(|line| line.strong_count() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn queue_exists_only_while_callers_use_it() {
        let queues = Queues::default();
        let (a, b) = (LockName::new("c", "a").unwrap(), LockName::new("c", "b").unwrap());
        let turn = queues.of(&a).turn().await;
        assert!(queues.of(&a).try_turn().is_none() && !turn.line().is_waited_for());
        {
            let mut next = std::pin::pin!(queues.of(&a).turn());
            assert!(futures::poll!(next.as_mut()).is_pending());
            assert!(turn.line().is_waited_for() && queues.is_waited_for(&a));
        }
        assert!(!turn.line().is_waited_for(), "it was dropped");
        drop(turn);
        assert!(queues.of(&a).try_turn().is_some() && !queues.is_waited_for(&a));
        let _turn = queues.of(&b).turn().await;
        assert_eq!(queues.queues.lock().len(), 1);
    }

    #[test]
    fn waiting_callers_are_limited() {
        let queues = Queues::default();
        let (one, _two) = (queues.enter(2).unwrap(), queues.enter(2).unwrap());
        assert_eq!(queues.enter(2).unwrap_err(), 2);
        drop(one);
        assert!(queues.enter(2).is_ok());
    }
}
