//! Voided locks of transactions without a record.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use txn_core::event::{Event, Observer};
use txn_core::{AttemptId, Config};

/// The maximum number of remembered transactions.
const MOST: usize = 1_000;

/// A transaction without a record, with locks that this process voided.
///
/// The process of the transaction died before the commit, or the record was deleted. A deleted
/// record may have been committed: then the commit is lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Voided {
    /// The tid of the transaction.
    pub tid: String,
    /// The documents with a lock of the transaction.
    pub documents: Vec<String>,
}

impl fmt::Display for Voided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tid, documents } = self;
        let documents = documents.join(", ");
        write!(
            f,
            "the transaction {tid} has no record, and its locks on {documents} were voided: its process died before the commit, \
             or its record was deleted"
        )
    }
}

/// Remembers voided locks, and passes each event on.
pub(crate) struct VoidedLocks {
    next: Option<Arc<dyn Observer>>,
    seen: Mutex<BTreeMap<AttemptId, BTreeSet<String>>>,
}

impl fmt::Debug for VoidedLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VoidedLocks").field("next", &self.next).finish_non_exhaustive()
    }
}

impl VoidedLocks {
    /// Observes a domain that is opened with the returned configuration.
    pub(crate) fn observe(config: Config) -> (Config, Arc<Self>) {
        let this = Arc::new(Self { next: config.observer().cloned(), seen: Mutex::default() });
        (config.with_observer(Some(this.clone())), this)
    }

    /// The voided locks of the first 1,000 transactions.
    ///
    /// The list starts at the open of the domain.
    pub(crate) fn seen(&self) -> Vec<Voided> {
        let voided = |(tid, documents): (&AttemptId, &BTreeSet<String>)| Voided {
            tid: tid.to_string(),
            documents: documents.iter().cloned().collect(),
        };
        self.seen.lock().iter().map(voided).collect()
    }
}

impl Observer for VoidedLocks {
    fn on_event(&self, event: &Event) {
        match event {
            Event::AbortedByRecovery { tid, document, recorded: false } => {
                let mut seen = self.seen.lock();
                if seen.len() < MOST || seen.contains_key(tid) {
                    seen.entry(*tid).or_default().insert(document.to_string());
                }
            }
            Event::Unlocked { tid, document } => {
                if let Some(documents) = self.seen.lock().get_mut(tid) {
                    documents.insert(document.to_string());
                }
            }
            _ => {}
        }
        if let Some(next) = &self.next {
            next.on_event(event);
        }
    }
}
