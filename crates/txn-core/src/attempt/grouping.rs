//! The interface of an attempt for groups: merge, members, and reservations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::attempt::merging::reservation::{DocumentReservation, Reservation};
use crate::attempt::merging::serial_batch::{Merge, SerialBatch};
use crate::attempt::{Attempt, Mutation, ReadWriteSet};
use crate::config::{LockMode, ReadMode};
use crate::engine::attempt_error::RetryReason;
use crate::engine::read_entry::ReadEntry;
use txn_store::Key;

impl Attempt {
    /// Whether the attempt cannot join a group.
    ///
    /// Such an attempt locks at each read, or has something that the members do not share, such as
    /// its own record. A nested transaction joins no group, because the outer transaction waits for
    /// the nested one.
    pub(crate) fn is_excluded_from_groups(&self) -> bool {
        self.pessimistic
            || self.options.read_mode == ReadMode::Lock
            || self.options.lock_mode == LockMode::AtCommitUngrouped
            || self.options.metadata.is_some()
            || self.options.own_record
            || self.is_solo.load(Ordering::Acquire)
            || !self.enclosing.is_empty()
    }

    /// Returns the documents that are only read, and the written ones.
    ///
    /// `None` if the attempt cannot join a group.
    pub(crate) fn documents_to_merge(&self) -> Option<(BTreeSet<Key>, BTreeSet<Key>)> {
        let working = self.working.lock();
        if self.is_excluded_from_groups() || !self.progress.is_working() {
            return None;
        }
        // A read-only transaction locks nothing in a group, and some absences have to be locked.
        let is_absent = |read: &ReadEntry| read.observed.image.is_none();
        if working.writes.is_empty() && working.reads.values().any(is_absent) {
            return None;
        }
        let only_read = working.reads.keys().filter(|key| !working.writes.contains_key(*key));
        Some((only_read.cloned().collect(), working.writes.keys().cloned().collect()))
    }

    /// The number of bytes that the attempt writes.
    pub(crate) fn bytes_to_write(&self) -> usize {
        let working = self.working.lock();
        let images = working.writes.values().filter_map(Mutation::image);
        images.map(|image| image.as_str().len()).fold(0, usize::saturating_add)
    }

    /// Adds the reads of this attempt to a batch.
    pub(crate) fn seed_reads(&self, batch: &mut SerialBatch) {
        for (key, read) in &self.working.lock().reads {
            batch.seed_read(key, read.clone());
        }
    }

    /// Merges this attempt into a batch, if the attempt fits.
    pub(crate) fn merge_into(&self, batch: &mut SerialBatch) -> Merge {
        batch.merge(&self.working.lock())
    }

    /// Forgets the last run of the closure. The next run reads from `batch`.
    pub(crate) fn restart_on(&self, batch: Arc<Mutex<SerialBatch>>) {
        *self.hot.batch.lock() = Some(batch);
        *self.working.lock() = ReadWriteSet::default();
    }

    /// Takes over the reads and writes of a batch, to commit them.
    ///
    /// `members`: the documents of each component. Returns the number of documents.
    pub(crate) fn represent(
        &self,
        batch: &SerialBatch,
        members: impl Iterator<Item = BTreeSet<Key>>,
        transactions: usize,
    ) -> usize {
        let active: BTreeMap<usize, BTreeSet<Key>> = members.enumerate().collect();
        let documents = {
            let mut working = self.working.lock();
            *working = batch.working();
            working.documents
        };
        self.decline_what_is_not_written(active.values().flatten().cloned());
        let is_recorded = transactions > 1 && documents > 1 && self.has_writes();
        self.hot.members.begin(active, is_recorded);
        documents
    }

    /// Evicts the components that use a document.
    ///
    /// Such components would fail the other members. The reads and writes of these components are
    /// forgotten. Locks that were taken for them remain, and the record names these as reads.
    /// Returns whether the attempt continues without the users of the document.
    pub(in crate::attempt) fn evict(&self, key: &Key, why: &RetryReason) -> bool {
        self.hot.members.evict(key, why, |stay, unused| self.forget(stay, unused))
    }

    /// Evicts a component whose caller waits no longer. Returns whether the component is out.
    ///
    /// The component stays if the attempt may be committed, or has no other component.
    pub(crate) fn leave(&self, component: usize) -> bool {
        self.hot.members.leave(component, |stay, unused| self.forget(stay, unused))
    }

    /// Forgets the documents that only evicted members use.
    fn forget(&self, stay: &dyn Fn(&Key) -> bool, unused: BTreeSet<Key>) {
        self.working.lock().retain(stay);
        self.decline_what_is_not_written(unused);
    }

    /// Returns unwritten documents to their earlier commits, which apply them.
    fn decline_what_is_not_written(&self, keys: impl IntoIterator<Item = Key>) {
        let unwanted: Vec<Key> = {
            let working = self.working.lock();
            keys.into_iter().filter(|key| !working.writes.contains_key(key)).collect()
        };
        self.engine.hot.handoffs.decline(&unwanted);
    }

    /// Takes the numbers of the evicted components, with the reasons.
    pub(crate) fn take_evicted(&self) -> Vec<(usize, RetryReason)> {
        self.hot.members.take_evicted()
    }

    /// Stores the permit and documents of a group, until the attempt ends.
    pub(crate) fn reserve(
        &self,
        permit: Box<dyn Reservation>,
        documents: Box<dyn DocumentReservation>,
    ) {
        self.hot.reservations.take(permit, documents);
    }

    /// Returns the entry of a document that is known without a request.
    pub(in crate::attempt) fn known(&self, key: &Key) -> Option<ReadEntry> {
        let batch = self.hot.batch.lock().clone();
        if let Some(read) = batch.and_then(|batch| batch.lock().read(key)) {
            return Some(read);
        }
        if !self.uses_cache {
            return None;
        }
        self.engine.hot.cache.get(key, self.engine.context.now())
    }
}
