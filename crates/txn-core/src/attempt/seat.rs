//! What an attempt occupies in the order in which the transactions of this process go, while it commits. Whoever keeps that
//! order hands it in as guards, and learns by their being dropped.

use std::collections::BTreeSet;
use std::fmt::Debug;

use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::store::Key;

/// Something that is given back by being dropped.
pub(crate) trait Guard: Debug + Send + Sync {}

/// Documents that are given back by being dropped.
pub(crate) trait Places: Guard {
    /// Whether somebody is ready, or expected, to write some of these next.
    fn are_awaited(&self) -> bool;

    /// Offers documents to whoever writes them next, for a moment: who takes them may begin already. `chain`: how many groups they
    /// will have come through then without being applied. Returns those that were taken.
    fn hand_over<'p>(
        &'p mut self,
        keys: &'p BTreeSet<Key>,
        chain: u8,
    ) -> BoxFuture<'p, BTreeSet<Key>>;

    /// Others may have these.
    fn give_back(&mut self, given: &dyn Fn(&Key) -> bool);

    /// Whether it was taken over from an attempt before, which waits for the lock.
    fn is_over(&self, key: &Key) -> bool;

    /// Those before need not wait for locks on these.
    fn decline(&mut self, declined: &dyn Fn(&Key) -> bool);
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

    /// Whether somebody is ready, or expected, to write some of its documents next.
    pub(super) fn is_awaited(&self) -> bool {
        self.documents.lock().as_ref().is_some_and(|documents| documents.are_awaited())
    }

    /// Whether a document was taken over from an attempt before, which waits for the lock.
    pub(super) fn is_over(&self, key: &Key) -> bool {
        self.documents.lock().as_ref().is_some_and(|documents| documents.is_over(key))
    }

    /// Those before need not wait for locks on these.
    pub(super) fn decline(&self, declined: &dyn Fn(&Key) -> bool) {
        if let Some(documents) = &mut *self.documents.lock() {
            documents.decline(declined);
        }
    }

    /// Offers documents to whoever comes next. Returns those that were taken.
    pub(super) async fn hand_over(&self, keys: &BTreeSet<Key>, chain: u8) -> BTreeSet<Key> {
        // Nobody else offers them meanwhile, and whoever gives them back takes the offer back.
        let Some(mut documents) = self.documents.lock().take() else { return BTreeSet::new() };
        let taken = documents.hand_over(keys, chain).await;
        *self.documents.lock() = Some(documents);
        taken
    }
}
