//! The order of an apply: own writes, other holders, finished mark.

use crate::rules::apply::Applying;

/// The next kind of work on a committed transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollForward {
    /// The transaction's own writes.
    Write,
    /// The remaining participants, and holders that have to be decided first.
    ResolveHolders,
    /// The mark on the record: acknowledged writes have settled every participant.
    Finish,
}

/// The next kind of work, by the next step of each participant.
///
/// Other holders are decided only once the transaction has no lock left to remove. Otherwise two
/// transactions, each with a duplicated placeholder on a participant of the other, would roll each
/// other forward without an end.
pub fn roll_forward(left: impl IntoIterator<Item = Applying>) -> RollForward {
    let mut next = RollForward::Finish;
    for step in left {
        match step {
            Applying::Write(_)
            | Applying::Delete(_)
            | Applying::Unlock(_)
            | Applying::RemovePlaceholder(_)
            | Applying::Touch(_)
            | Applying::Overtaken(_)
            | Applying::PerhapsOvertaken(_) => return RollForward::Write,
            Applying::ProveAbsence
            | Applying::Held(_)
            | Applying::Unclear(_)
            | Applying::Elsewhere
            | Applying::Done
            | Applying::Damaged => {
                next = RollForward::ResolveHolders;
            }
        }
    }
    next
}
