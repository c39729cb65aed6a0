//! What a worker tells: its events, one JSON object a line.

use std::fmt;

use serde::{Deserialize, Serialize};
use txn_core::AttemptId;
use txn_core::event::{Event, Observer};
use txn_core::store::Key;

/// One line of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Line {
    /// It begins with its transfers.
    Ready { pid: u32 },
    /// An attempt began.
    Started { tid: AttemptId },
    /// Locks were acknowledged.
    Locked { tid: AttemptId, documents: Vec<String> },
    /// It waits for an older holder.
    Waiting { tid: AttemptId, holder: AttemptId, document: String },
    /// An older transaction aborted a younger one.
    Wounded { by: AttemptId, victim: AttemptId, document: String },
    /// The commit was acknowledged.
    Committed { tid: AttemptId, written: usize },
    /// An attempt ended without a commit.
    Aborted { tid: AttemptId, why: String, retried: bool },
    /// Everything is applied.
    Finished { tid: AttemptId },
    /// A committed transaction of somebody else was applied.
    Replayed { tid: AttemptId, documents: Vec<String> },
    /// An undecided transaction of somebody else was aborted.
    AbortedByRecovery { tid: AttemptId, document: String },
    /// A lock of an aborted transaction was taken off.
    Unlocked { tid: AttemptId, document: String },
    /// A person must look.
    Damaged { tid: AttemptId, document: String, what: String },
    /// A transfer failed.
    Failed { why: String },
    /// It ended as it was told to.
    Done { committed: u64 },
}

/// A document in the words of the bank.
fn document(key: &Key) -> String {
    if key.collection.ends_with("-accounts") {
        key.id.to_string()
    } else if key.collection.ends_with("-transfers") {
        format!("transfer {}", key.id)
    } else {
        "its record".to_owned()
    }
}

impl Line {
    fn of(event: &Event) -> Option<Self> {
        let documents = |keys: &[Key]| keys.iter().map(document).collect();
        Some(match event {
            Event::Started { tid } => Self::Started { tid: *tid },
            Event::Locked { tid, documents: keys } => {
                Self::Locked { tid: *tid, documents: documents(keys) }
            }
            Event::Waiting { tid, holder, document: key } => {
                Self::Waiting { tid: *tid, holder: *holder, document: document(key) }
            }
            Event::Wounded { by, victim, document: key } => {
                Self::Wounded { by: *by, victim: *victim, document: document(key) }
            }
            Event::Committed { tid, written, .. } => {
                Self::Committed { tid: *tid, written: *written }
            }
            Event::Aborted { tid, why, retried } => {
                Self::Aborted { tid: *tid, why: why.clone(), retried: *retried }
            }
            Event::Finished { tid } => Self::Finished { tid: *tid },
            Event::Replayed { tid, documents: keys } => {
                Self::Replayed { tid: *tid, documents: documents(keys) }
            }
            Event::AbortedByRecovery { tid, document: key, .. } => {
                Self::AbortedByRecovery { tid: *tid, document: document(key) }
            }
            Event::Unlocked { tid, document: key } => {
                Self::Unlocked { tid: *tid, document: document(key) }
            }
            Event::Damaged { tid, document: key, what } => {
                Self::Damaged { tid: *tid, document: document(key), what: what.clone() }
            }
            _ => return None,
        })
    }
}

/// Hands events on as lines, at once: what a worker was told is told before it acts on it.
pub(crate) struct Teller<F>(pub(crate) F);

impl<F> fmt::Debug for Teller<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Teller")
    }
}

impl<F: Fn(Line) + Send + Sync + 'static> Observer for Teller<F> {
    fn on_event(&self, event: &Event) {
        if let Some(line) = Line::of(event) {
            (self.0)(line);
        }
    }
}
