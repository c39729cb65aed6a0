//! Members of an attempt: components, and eviction.
//!
//! Members are linked if one of them writes a document that the other uses. Directly or
//! transitively linked members form one component. An attempt evicts whole components.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

use crate::engine::attempt_error::RetryReason;
use txn_store::Key;

/// The members of an attempt, by component.
#[derive(Debug, Default)]
pub(in crate::attempt) struct Members(Mutex<Components>);

#[derive(Debug, Default)]
struct Components {
    /// The documents of each component, by the number of the component.
    active: BTreeMap<usize, BTreeSet<Key>>,
    /// The evicted components, with the reasons.
    evicted: Vec<(usize, RetryReason)>,
    /// Whether the commit is about to be sent: no member may leave.
    is_closed: bool,
    /// Whether the outcome must be in a record.
    ///
    /// True if several members use several documents. Then `Unknown` may be the answer to a caller
    /// while another caller receives a success.
    is_recorded: bool,
}

impl Components {
    fn uses(&self, key: &Key) -> bool {
        self.active.values().any(|keys| keys.contains(key))
    }

    /// Evicts components. `forget` receives the documents that the evicted components used.
    fn evict(
        &mut self,
        is_one: impl Fn(usize, &BTreeSet<Key>) -> bool,
        why: &RetryReason,
        forget: impl FnOnce(&dyn Fn(&Key) -> bool, BTreeSet<Key>),
    ) {
        let mut unused = BTreeSet::new();
        for (number, keys) in self.active.extract_if(.., |number, keys| is_one(*number, keys)) {
            self.evicted.push((number, why.clone()));
            unused.extend(keys);
        }
        forget(&|key| self.uses(key), unused);
    }
}

impl Members {
    /// Begins with these components.
    pub(in crate::attempt) fn begin(
        &self,
        active: BTreeMap<usize, BTreeSet<Key>>,
        is_recorded: bool,
    ) {
        *self.0.lock() = Components { active, is_recorded, ..Components::default() };
    }

    /// Evicts the components that use a document, if others remain.
    ///
    /// Returns whether the attempt continues. `forget` receives a test of the documents that stay,
    /// and the documents that the evicted components used.
    pub(in crate::attempt) fn evict(
        &self,
        key: &Key,
        why: &RetryReason,
        forget: impl FnOnce(&dyn Fn(&Key) -> bool, BTreeSet<Key>),
    ) -> bool {
        let components = &mut *self.0.lock();
        if components.active.values().all(|keys| keys.contains(key)) {
            return false;
        }
        components.evict(|_, keys| keys.contains(key), why, forget);
        // A document that no member uses blocks all of them.
        !components.evicted.is_empty()
    }

    /// Evicts a component whose caller waits no longer. Returns whether the component is out.
    ///
    /// The component stays after [`Self::close`], and if no other component remains. `forget`: as
    /// for [`Self::evict`].
    pub(in crate::attempt) fn leave(
        &self,
        component: usize,
        forget: impl FnOnce(&dyn Fn(&Key) -> bool, BTreeSet<Key>),
    ) -> bool {
        let components = &mut *self.0.lock();
        if !components.active.contains_key(&component) {
            return true;
        }
        if components.is_closed || components.active.len() == 1 {
            return false;
        }
        components.evict(|number, _| number == component, &RetryReason::LeftGroup, forget);
        true
    }

    /// Closes the membership before the commit is sent.
    ///
    /// A member that left before is out.
    pub(in crate::attempt) fn close(&self) {
        self.0.lock().is_closed = true;
    }

    /// Whether only evicted members use a document.
    pub(in crate::attempt) fn is_evicted(&self, key: &Key) -> bool {
        let components = self.0.lock();
        !components.evicted.is_empty() && !components.uses(key)
    }

    /// Takes the numbers of the evicted components, with the reasons.
    pub(in crate::attempt) fn take_evicted(&self) -> Vec<(usize, RetryReason)> {
        std::mem::take(&mut self.0.lock().evicted)
    }

    /// Whether the outcome must be in a record, even for one document.
    pub(in crate::attempt) fn is_recorded(&self) -> bool {
        self.0.lock().is_recorded
    }

    /// Whether the attempt has evicted members.
    pub(in crate::attempt) fn has_evicted(&self) -> bool {
        !self.0.lock().evicted.is_empty()
    }

    /// Whether the attempt commits several independent components.
    pub(in crate::attempt) fn has_several_components(&self) -> bool {
        self.0.lock().active.len() > 1
    }
}
