//! An attempt whose closure has ended, and that others may be composed with into one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::composition::{Composition, Fit};
use super::seat::{Guard, Places};
use super::{Attempt, Working};
use crate::engine::attempt_error::RetryReason;
use crate::engine::observe::ReadEntry;
use crate::store::Key;

/// What an attempt stands for: transactions that share documents, directly or by others, are one component.
#[derive(Debug, Default)]
pub(super) struct Components {
    /// The documents of each, by its number.
    going: BTreeMap<usize, BTreeSet<Key>>,
    /// Those that were set aside, and why.
    left: Vec<(usize, RetryReason)>,
    /// The commit is about to be sent: nobody leaves of its own accord any more.
    sealed: bool,
    /// Several transactions use several documents: one of them may be told that it is in doubt while others hear that they are
    /// committed, so its outcome stands in a record, whatever they come to.
    recorded: bool,
}

impl Attempt {
    /// Whether it cannot be composed with others: it locks as it reads, or somebody knows of it what the others do not share, such
    /// as its tid. Nested ones go by themselves, for those around them wait.
    pub(crate) fn goes_by_itself(&self) -> bool {
        self.pessimistic
            || self.options.lock_reads
            || self.options.by_itself
            || self.options.metadata.is_some()
            || self.asked.load(Ordering::Acquire)
            || self.pinned.load(Ordering::Acquire)
            || !self.enclosing.is_empty()
    }

    /// The documents that are only read and those that are written, of an attempt that may be composed with others.
    pub(crate) fn documents_to_join(&self) -> Option<(BTreeSet<Key>, BTreeSet<Key>)> {
        let working = self.working.lock();
        if self.goes_by_itself() || !self.progress.is_working() {
            return None;
        }
        // Whoever only reads locks nothing with others, and some absences have to be locked.
        let is_absent = |read: &ReadEntry| read.observed.image.is_none();
        if working.writes.is_empty() && working.reads.values().any(is_absent) {
            return None;
        }
        let only_read = working.reads.keys().filter(|key| !working.writes.contains_key(*key));
        Some((only_read.cloned().collect(), working.writes.keys().cloned().collect()))
    }

    /// How much it writes, in bytes.
    pub(crate) fn bytes_to_write(&self) -> usize {
        let working = self.working.lock();
        let images = working.writes.values().filter_map(super::Mutation::image);
        images.map(|image| image.as_str().len()).fold(0, usize::saturating_add)
    }

    /// Shows a composition what this attempt read.
    pub(crate) fn teach(&self, composition: &mut Composition) {
        for (key, read) in &self.working.lock().reads {
            composition.learn(key, read.clone());
        }
    }

    /// Composes what this attempt did, if it fits.
    pub(crate) fn join(&self, composition: &mut Composition) -> Fit {
        composition.admit(&self.working.lock())
    }

    /// Forgets what its closure did, which runs again, and reads what is composed so far.
    pub(crate) fn run_again_on(&self, basis: Arc<Mutex<Composition>>) {
        *self.hot.basis.lock() = Some(basis);
        *self.working.lock() = Working::default();
    }

    /// Stands for all that is composed: transactions that share documents, directly or by others, are one component. Returns how
    /// many documents that takes.
    pub(crate) fn stand_for(
        &self,
        composition: &Composition,
        components: impl Iterator<Item = BTreeSet<Key>>,
        transactions: usize,
    ) -> usize {
        let going: BTreeMap<usize, BTreeSet<Key>> = components.enumerate().collect();
        let documents = {
            let mut working = self.working.lock();
            *working = composition.working();
            working.documents
        };
        self.decline_what_is_not_written(going.values().flatten().cloned());
        let recorded = transactions > 1 && documents > 1 && self.has_writes();
        *self.hot.components.lock() = Components { going, recorded, ..Components::default() };
        documents
    }

    /// Goes on without those who use a document, for they would fail the others. What they wanted is forgotten; what was
    /// locked for them stays locked, and stands in the record as read. Returns whether others are left.
    pub(super) fn set_aside(&self, key: &Key, why: &RetryReason) -> bool {
        let components = &mut *self.hot.components.lock();
        if components.going.values().all(|keys| keys.contains(key)) {
            return false;
        }
        self.go_on_without(components, |_, keys| keys.contains(key), why);
        // What none of them uses is in the way of all.
        !components.left.is_empty()
    }

    /// Goes on without a component whose caller waits no longer, unless it may be committed or there is no other. Returns whether
    /// it is out.
    pub(crate) fn leave(&self, component: usize) -> bool {
        let components = &mut *self.hot.components.lock();
        if !components.going.contains_key(&component) {
            return true;
        }
        if components.sealed || components.going.len() == 1 {
            return false;
        }
        self.go_on_without(components, |number, _| number == component, &RetryReason::LeftGroup);
        true
    }

    /// Goes on without some components, and forgets what only they wanted.
    fn go_on_without(
        &self,
        components: &mut Components,
        is_one: impl Fn(usize, &BTreeSet<Key>) -> bool,
        why: &RetryReason,
    ) {
        let Components { going, left, .. } = components;
        let mut unused = BTreeSet::new();
        for (number, keys) in going.extract_if(.., |number, keys| is_one(*number, keys)) {
            left.push((number, why.clone()));
            unused.extend(keys);
        }
        let stay = |key: &Key| going.values().any(|keys| keys.contains(key));
        self.working.lock().retain(stay);
        self.decline_what_is_not_written(unused);
    }

    /// The commits before apply what this attempt does not lock.
    fn decline_what_is_not_written(&self, keys: impl IntoIterator<Item = Key>) {
        let unwanted: Vec<Key> = {
            let working = self.working.lock();
            keys.into_iter().filter(|key| !working.writes.contains_key(key)).collect()
        };
        self.engine.hot.handoffs.decline(&unwanted);
    }

    /// The commit is about to be sent. Who left before is out.
    pub(super) fn seal(&self) {
        self.hot.components.lock().sealed = true;
    }

    /// Whether a document is used only by those who were set aside.
    pub(super) fn is_set_aside(&self, key: &Key) -> bool {
        let Components { going, left, .. } = &*self.hot.components.lock();
        !left.is_empty() && !going.values().any(|keys| keys.contains(key))
    }

    /// The numbers of the components that were set aside, with the reasons.
    pub(crate) fn take_left(&self) -> Vec<(usize, RetryReason)> {
        std::mem::take(&mut self.hot.components.lock().left)
    }

    /// Whether its outcome has to stand in a record, whatever it comes to.
    pub(super) fn is_recorded(&self) -> bool {
        self.hot.components.lock().recorded
    }

    /// Whether it goes on without some.
    pub(super) fn has_left(&self) -> bool {
        !self.hot.components.lock().left.is_empty()
    }

    /// Whether it stands for transactions that have nothing to do with each other.
    pub(super) fn has_components(&self) -> bool {
        self.hot.components.lock().going.len() > 1
    }

    /// Takes a seat, which it leaves with its end.
    pub(crate) fn take_seat(&self, turn: Box<dyn Guard>, documents: Box<dyn Places>) {
        self.hot.seat.take(turn, documents);
    }

    /// What is known of a document without asking the store.
    pub(super) fn recall(&self, key: &Key) -> Option<ReadEntry> {
        let basis = self.hot.basis.lock().clone();
        if let Some(read) = basis.and_then(|basis| basis.lock().look(key)) {
            return Some(read);
        }
        if !self.recalls {
            return None;
        }
        self.engine.hot.cache.get(key, self.engine.now())
    }
}
