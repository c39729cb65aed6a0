//! Reservations of an attempt: the permit of its group, and its documents.
//!
//! The group queue hands each reservation in as a guard. A dropped guard returns the permit or
//! frees the documents.

use std::collections::BTreeSet;
use std::fmt::Debug;

use crate::sync::Mutex;
use txn_store::Key;

/// A guard that frees its reservation when dropped.
pub(crate) trait Reservation: Debug + Send + Sync {}

/// A guard that frees its documents when dropped.
pub(crate) trait DocumentReservation: Reservation {
    /// Frees the documents for which `given` is true.
    fn give_back(&mut self, given: &dyn Fn(&Key) -> bool);

    /// Takes back the documents that no other transaction uses.
    ///
    /// Returns these documents.
    fn reclaim(&mut self, keys: BTreeSet<Key>) -> BTreeSet<Key>;
}

/// The reservations of an attempt in the queue of its process.
#[derive(Debug, Default)]
pub(in crate::attempt) struct Reservations {
    permit: Mutex<Option<Box<dyn Reservation>>>,
    documents: Mutex<Option<Box<dyn DocumentReservation>>>,
}

impl Reservations {
    /// Stores the guards.
    ///
    /// `permit`: the permit of the group, until the commit is acknowledged or waits for a lock.
    /// `documents`: until they are applied.
    pub(in crate::attempt) fn take(
        &self,
        permit: Box<dyn Reservation>,
        documents: Box<dyn DocumentReservation>,
    ) {
        *self.permit.lock() = Some(permit);
        *self.documents.lock() = Some(documents);
    }

    /// Returns the permit of the group.
    pub(in crate::attempt) fn return_permit(&self) {
        // The guard is dropped after the mutex is free, because a guard may call the queue.
        let permit = self.permit.lock().take();
        drop(permit);
    }

    /// Returns the permit of the group, and frees the documents.
    pub(in crate::attempt) fn free_all(&self) {
        self.return_permit();
        let documents = self.documents.lock().take();
        drop(documents);
    }

    /// Frees the documents for which `given` is true.
    pub(in crate::attempt) fn give_back(&self, given: &dyn Fn(&Key) -> bool) {
        if let Some(documents) = &mut *self.documents.lock() {
            documents.give_back(given);
        }
    }

    pub(in crate::attempt) fn has_documents(&self) -> bool {
        self.documents.lock().is_some()
    }

    /// Takes back the documents that no other transaction of the queue uses.
    ///
    /// Returns these documents.
    pub(in crate::attempt) fn reclaim(&self, keys: BTreeSet<Key>) -> BTreeSet<Key> {
        match &mut *self.documents.lock() {
            Some(documents) => documents.reclaim(keys),
            None => keys,
        }
    }
}
