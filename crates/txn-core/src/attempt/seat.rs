//! What an attempt occupies in the order in which the transactions of this process go, while it commits. Whoever keeps that
//! order hands it in as guards, and learns by their being dropped.

use std::fmt::Debug;

use parking_lot::Mutex;

/// Something that is given back by being dropped.
pub(crate) trait Guard: Debug + Send + Sync {}

/// Where an attempt sits.
#[derive(Debug, Default)]
pub(super) struct Seat {
    turn: Mutex<Option<Box<dyn Guard>>>,
    documents: Mutex<Option<Box<dyn Guard>>>,
}

impl Seat {
    /// `turn`: until the commit is acknowledged, or has to wait for others. `documents`: until they are applied.
    pub(super) fn take(&self, turn: Box<dyn Guard>, documents: Box<dyn Guard>) {
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
}
