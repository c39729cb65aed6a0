//! The output of a worker: its events, one JSON object per line.

use std::fmt;

use serde::{Deserialize, Serialize};
use txn_core::AttemptId;
use txn_core::event::{Event, Observer};
use txn_core::store::Key;

/// A line of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Line {
    /// The worker starts its transfers.
    Ready { pid: u32 },
    /// An attempt began.
    Started { tid: AttemptId },
    /// Locks were acknowledged.
    Locked { tid: AttemptId, documents: Vec<String> },
    /// The attempt waits for an older holder.
    Waiting { tid: AttemptId, holder: AttemptId, document: String },
    /// An older transaction aborted a younger one.
    Wounded { by: AttemptId, victim: AttemptId, document: String },
    /// The commit was acknowledged.
    Committed { tid: AttemptId, written: usize },
    /// An attempt ended without a commit.
    Aborted { tid: AttemptId, why: String, retried: bool },
    /// All documents are applied.
    Finished { tid: AttemptId },
    /// A committed transaction of another process was rolled forward.
    RolledForward { tid: AttemptId, documents: Vec<String> },
    /// An undecided transaction of another process was aborted.
    AbortedByRecovery { tid: AttemptId, document: String },
    /// A lock of an aborted transaction was released.
    Unlocked { tid: AttemptId, document: String },
    /// A document needs an operator.
    Damaged { tid: AttemptId, document: String, what: String },
    /// A transfer failed.
    Failed { why: String },
    /// The worker ended on request.
    Done { committed: u64 },
}

/// The name of a document for readers of the report.
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
            Event::Started { tid, .. } => Self::Started { tid: *tid },
            Event::Locked { tid, documents: keys } => {
                Self::Locked { tid: *tid, documents: documents(keys) }
            }
            Event::Waiting { tid, holder, document: key, .. } => {
                Self::Waiting { tid: *tid, holder: *holder, document: document(key) }
            }
            Event::Wounded { by, victim, document: key, .. } => {
                Self::Wounded { by: *by, victim: *victim, document: document(key) }
            }
            Event::Committed { tid, written, .. } => {
                Self::Committed { tid: *tid, written: *written }
            }
            Event::Aborted { tid, why, retried, .. } => {
                Self::Aborted { tid: *tid, why: why.clone(), retried: *retried }
            }
            Event::Finished { tid } => Self::Finished { tid: *tid },
            Event::RolledForward { tid, documents: keys } => {
                Self::RolledForward { tid: *tid, documents: documents(keys) }
            }
            Event::AbortedByRecovery { tid, document: key, .. } => {
                Self::AbortedByRecovery { tid: *tid, document: document(key) }
            }
            Event::Unlocked { tid, document: key } => {
                Self::Unlocked { tid: *tid, document: document(key) }
            }
            Event::Damaged { tid, document: key, what, .. } => {
                Self::Damaged { tid: *tid, document: document(key), what: what.clone() }
            }
            _ => return None,
        })
    }
}

/// Passes events on as lines, at once, before the worker continues.
pub(crate) struct LineObserver<F>(pub(crate) F);

impl<F> fmt::Debug for LineObserver<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LineObserver")
    }
}

impl<F: Fn(Line) + Send + Sync + 'static> Observer for LineObserver<F> {
    fn on_event(&self, event: &Event) {
        if let Some(line) = Line::of(event) {
            (self.0)(line);
        }
    }
}
