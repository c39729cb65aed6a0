//! Reads and recovery of a locked document, by the holder's record.

use super::conflict::HolderState;
use crate::record::{Op, State};
use crate::rule::{Rule, Rules};

/// A reader's answer for a locked document. A reader never locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The document's own content, which is always the last committed content.
    CommittedImage,
    /// The content for this document in the holder's record.
    RecordImage,
}

/// The answer of a reader, by the state of the holder.
///
/// `written`: the record names the document as a participant that it writes, deletes or inserts,
/// and the lock is that participant's lock (see [`super::apply::is_participants_lock`]).
pub fn reading(rules: &Rules, state: HolderState, written: bool) -> Reading {
    match state {
        HolderState::Record(State::Committed | State::Finished)
            if written && rules.decides(Rule::ReadTheRecord) =>
        {
            Reading::RecordImage
        }
        HolderState::Missing
        | HolderState::Gone
        | HolderState::Record(
            State::Pending | State::Aborted | State::Committed | State::Finished,
        ) => Reading::CommittedImage,
    }
}

/// Whether an operation changes its participant.
pub fn writes(op: Op) -> bool {
    match op {
        Op::Write | Op::Delete | Op::Insert => true,
        Op::Read => false,
    }
}

/// The step for a holder that is dead, wounded or decided.
///
/// A writer or a janitor takes this step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryStep {
    /// Create the record as `aborted`. Once that is acknowledged, its locks are void.
    CreateAborted,
    /// Replace `pending` by `aborted`. Once that is acknowledged, its locks are void.
    SwapToAborted,
    /// Touch the `aborted` record, because its write may vanish. Once the touch is acknowledged,
    /// its locks are void.
    TouchAborted,
    /// The locks of the holder are void.
    Void,
    /// Touch the `committed` record, apply every participant, then mark it `finished`.
    RollForward,
    /// Apply participants that are still locked. Locks that the record does not name are void.
    ApplyOrVoid,
}

/// The step for a holder in this state.
///
/// `ours`: this process wrote the `aborted` record, and the write was acknowledged.
pub fn recovery(rules: &Rules, state: HolderState, ours: bool) -> RecoveryStep {
    match state {
        HolderState::Missing | HolderState::Record(State::Pending)
            if !rules.decides(Rule::AbortBeforeTakeOver) =>
        {
            RecoveryStep::Void
        }
        HolderState::Missing => RecoveryStep::CreateAborted,
        HolderState::Gone => RecoveryStep::Void,
        HolderState::Record(State::Pending) => RecoveryStep::SwapToAborted,
        HolderState::Record(State::Aborted) if ours || !rules.decides(Rule::TouchAborted) => {
            RecoveryStep::Void
        }
        HolderState::Record(State::Aborted) => RecoveryStep::TouchAborted,
        HolderState::Record(State::Committed) => RecoveryStep::RollForward,
        HolderState::Record(State::Finished) => RecoveryStep::ApplyOrVoid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row() {
        use HolderState::{Gone, Missing, Record};
        use Reading::{CommittedImage, RecordImage};
        use State::{Aborted, Committed, Finished, Pending};
        let rules = Rules::all();
        for (state, member_reads, other_reads, does) in [
            (Missing, CommittedImage, CommittedImage, RecoveryStep::CreateAborted),
            (Gone, CommittedImage, CommittedImage, RecoveryStep::Void),
            (Record(Pending), CommittedImage, CommittedImage, RecoveryStep::SwapToAborted),
            (Record(Aborted), CommittedImage, CommittedImage, RecoveryStep::TouchAborted),
            (Record(Committed), RecordImage, CommittedImage, RecoveryStep::RollForward),
            (Record(Finished), RecordImage, CommittedImage, RecoveryStep::ApplyOrVoid),
        ] {
            assert_eq!(reading(&rules, state, true), member_reads, "{state:?}, a written member");
            assert_eq!(reading(&rules, state, false), other_reads, "{state:?}, not written");
            assert_eq!(recovery(&rules, state, false), does, "{state:?}");
            let ours = if state == Record(Aborted) { RecoveryStep::Void } else { does };
            assert_eq!(recovery(&rules, state, true), ours, "{state:?}, our own word");
        }
    }

    #[test]
    fn read_participant_is_not_written() {
        let written: Vec<bool> =
            [Op::Write, Op::Delete, Op::Insert, Op::Read].into_iter().map(writes).collect();
        assert_eq!(written, [true, true, true, false]);
    }
}
