//! What an attempt occupies in the order in which the transactions of this process go, while it commits. Whoever keeps that
//! order hands it in as guards, and learns by their being dropped.

use std::collections::BTreeSet;
use std::fmt::Debug;

use parking_lot::Mutex;

use crate::store::Key;

/// Something that is given back by being dropped.
pub(crate) trait Guard: Debug + Send + Sync {}

/// Documents that are given back by being dropped.
pub(crate) trait Places: Guard {
    /// Others may have these.
    fn give_back(&mut self, given: &dyn Fn(&Key) -> bool);

    /// Takes those of the documents back that no other transaction uses. Returns them.
    fn reclaim(&mut self, keys: BTreeSet<Key>) -> BTreeSet<Key>;
}

/// Where an attempt sits.
#[derive(Debug, Default)]
pub(super) struct Seat {
    turn: Mutex<Option<Box<dyn Guard>>>,
    documents: Mutex<Option<Box<dyn Places>>>,
}

impl Seat {
    /// `turn`: until the commit is acknowledged, or has to wait for others. `documents`: until they are applied.
    pub(super) fn take(&self, turn: Box<dyn Guard>, documents: Box<dyn Places>) {
        *self.turn.lock() = Some(turn);
        *self.documents.lock() = Some(documents);
    }

    /// Others may have their turn.
    pub(super) fn leave_turn(&self) {
        // Dropped when the lock is gone: a guard may call whoever keeps the order.
        let turn = self.turn.lock().take();
        drop(turn);
    }

    /// Others may have the documents, too.
    pub(super) fn leave(&self) {
        self.leave_turn();
        let documents = self.documents.lock().take();
        drop(documents);
    }

    /// Others may have these documents.
    pub(super) fn give_back(&self, given: &dyn Fn(&Key) -> bool) {
        if let Some(documents) = &mut *self.documents.lock() {
            documents.give_back(given);
        }
    }

    pub(super) fn has_documents(&self) -> bool {
        self.documents.lock().is_some()
    }

    /// Takes those of the documents back that no other transaction of the queue uses. Returns them.
    pub(super) fn reclaim(&self, keys: BTreeSet<Key>) -> BTreeSet<Key> {
        match &mut *self.documents.lock() {
            Some(documents) => documents.reclaim(keys),
            None => keys,
        }
    }
}
