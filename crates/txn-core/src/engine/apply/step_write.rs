//! The write of one step of an apply.

use txn_protocol::document::{Stored, View};
use txn_protocol::rules::apply::Applying;
use txn_store::WriteOp;

/// Returns the write of a step, if the step needs one.
pub(in crate::engine) fn step_write(
    step: Applying,
    view: &View,
    committed: impl FnOnce(&Stored) -> Stored,
) -> Option<WriteOp> {
    let View::Present { source, stored, .. } = view else { return None };
    match step {
        Applying::Write(version) => Some(WriteOp::Replace(committed(stored).encode(), version)),
        Applying::Delete(version) | Applying::RemovePlaceholder(version) => {
            Some(WriteOp::Delete(version))
        }
        Applying::Unlock(version) => {
            Some(WriteOp::Replace(stored.locked_by(None).encode(), version))
        }
        Applying::Touch(version) | Applying::Overtaken(version) => {
            Some(WriteOp::Replace(source.clone(), version))
        }
        Applying::ProveAbsence
        | Applying::Held(_)
        | Applying::Unclear(_)
        | Applying::PerhapsOvertaken(_)
        | Applying::Elsewhere
        | Applying::Done
        | Applying::Damaged => None,
    }
}
