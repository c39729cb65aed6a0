//! Applying a committed transaction, step by step: its own writes first, then help for others, the mark at last.

use crate::rules::apply::Applying;

/// What has its turn about a committed transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollForward {
    /// Its own writes.
    Write,
    /// Whatever is left; also who holds a participant, and has to be decided first.
    Help,
    /// The mark on the record: every participant is settled by acknowledged writes.
    Finish,
}

/// What has its turn, by what is left to be done to the participants. Only whoever has no lock left to take off helps others:
/// two transactions, each with a forked placeholder on a participant of the other, would help each other without an end.
pub fn roll_forward(left: impl IntoIterator<Item = Applying>) -> RollForward {
    let mut turn = RollForward::Finish;
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
                turn = RollForward::Help;
            }
        }
    }
    turn
}
