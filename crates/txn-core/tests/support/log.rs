//! A log of the events of a domain.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use txn_core::event::{Event, Observer};
use txn_core::store::Key;

#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<Vec<Event>>);

impl Observer for Log {
    fn on_event(&self, event: &Event) {
        self.0.lock().push(event.clone());
    }
}

impl Log {
    /// Returns the parts of events that `what` picks.
    pub(crate) fn of<T>(&self, what: impl Fn(&Event) -> Option<T>) -> Vec<T> {
        self.0.lock().iter().filter_map(what).collect()
    }

    /// Returns the documents that were reported as damaged.
    pub(crate) fn damaged(&self) -> Vec<Key> {
        let damaged = self.of(|event| match event {
            Event::Damaged { document, .. } => Some(document.clone()),
            _ => None,
        });
        damaged.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub(crate) fn count(&self, matches: impl Fn(&Event) -> bool) -> usize {
        self.0.lock().iter().filter(|event| matches(event)).count()
    }
}
