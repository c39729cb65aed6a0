//! The name of a transaction with its label.

use txn_protocol::ids::AttemptId;

/// A tid with its label, for errors and logs.
pub(crate) fn named(tid: AttemptId, label: Option<&str>) -> String {
    match label {
        Some(label) => format!("{tid} ({label})"),
        None => tid.to_string(),
    }
}
