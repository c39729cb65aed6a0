//! The record of an attempt: decision, commit, finish, and owner's writes.
//!
//! Other processes decide the record; the owner commits and finishes it. All writes of the owner go
//! through one writer, one after the other.

use txn_store::Version;

use super::settle::{Condition, Machine, Settle};
use crate::record::State;
use crate::rule::{Rule, Rules};
use crate::rules::conflict::HolderState;
use crate::rules::resolve::{RecoveryStep, recovery};

/// A record as it was read: its state and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordVersion {
    /// The state of the record.
    pub state: HolderState,
    /// The version of the record, if there is one.
    pub version: Option<Version>,
}

impl RecordVersion {
    /// No record, in a partition that exists.
    pub const MISSING: Self = Self { state: HolderState::Missing, version: None };

    /// A record in this state at this version.
    #[must_use]
    pub const fn at(state: State, version: Version) -> Self {
        Self { state: HolderState::Record(state), version: Some(version) }
    }

    fn touch<P>(&self, proven: P) -> Settle<P> {
        self.version.map_or(Settle::Stuck, |version| Settle::Touch(version, proven))
    }

    fn replace<P>(&self, proven: P) -> Settle<P> {
        self.version.map_or(Settle::Stuck, |version| Settle::Write(Condition::At(version), proven))
    }
}

/// The outcome of a decided holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The holder never commits: its locks are void.
    Aborted,
    /// The holder is committed.
    Committed,
}

/// Decides a holder by the recovery table.
///
/// The holder is dead, wounded or decided already.
///
/// A write of this machine has the state `aborted`.
#[derive(Clone, Copy, Debug)]
pub struct Decide<'a> {
    /// The rules in force.
    pub rules: &'a Rules,
    /// Whether this process wrote `aborted`, and the write was acknowledged.
    pub known_aborted: bool,
    /// The record at which the holder counts as dead. `None` if the holder is aborted for another
    /// reason.
    ///
    /// A later write of an undecided record is a sign of life, so that no write settles it.
    pub dead_at: Option<RecordVersion>,
}

impl Decide<'_> {
    /// Whether the holder wrote its record since it was taken for dead.
    fn is_alive(&self, seen: &RecordVersion) -> bool {
        let undecided =
            matches!(seen.state, HolderState::Missing | HolderState::Record(State::Pending));
        undecided && self.dead_at.is_some_and(|dead_at| dead_at != *seen)
    }
}

impl Machine for Decide<'_> {
    type Seen = RecordVersion;
    type Proven = Decision;

    fn next(&self, seen: &RecordVersion) -> Settle<Decision> {
        use Decision::{Aborted, Committed};
        let rules = self.rules;
        if self.is_alive(seen) {
            return Settle::Stuck;
        }
        match recovery(rules, seen.state, self.known_aborted) {
            RecoveryStep::Void => Settle::Known(Aborted),
            RecoveryStep::CreateAborted => Settle::Write(Condition::Absent, Aborted),
            RecoveryStep::SwapToAborted => seen.replace(Aborted),
            RecoveryStep::TouchAborted => seen.touch(Aborted),
            RecoveryStep::RollForward if !rules.decides(Rule::TouchCommitted) => {
                Settle::Known(Committed)
            }
            RecoveryStep::RollForward | RecoveryStep::ApplyOrVoid => seen.touch(Committed),
        }
    }
}

/// The commit point: the owner writes its record as `committed`.
///
/// The machine ends when an acknowledged write proves that the record is committed, or that another
/// process aborted it.
#[derive(Clone, Copy, Debug)]
pub struct Commit<'a> {
    /// The rules in force.
    pub rules: &'a Rules,
}

impl Machine for Commit<'_> {
    type Seen = RecordVersion;
    type Proven = Decision;

    fn next(&self, seen: &RecordVersion) -> Settle<Decision> {
        use Decision::{Aborted, Committed};
        match seen.state {
            HolderState::Missing => Settle::Write(Condition::Absent, Committed),
            HolderState::Record(State::Pending) => seen.replace(Committed),
            HolderState::Record(State::Aborted) if !self.rules.decides(Rule::AbortFlag) => {
                seen.replace(Committed)
            }
            HolderState::Record(State::Aborted) => seen.touch(Aborted),
            // Only the owner commits: it was its own write.
            HolderState::Record(State::Committed | State::Finished)
                if !self.rules.decides(Rule::CommitSettled) =>
            {
                Settle::Known(Committed)
            }
            HolderState::Record(State::Committed | State::Finished) => seen.touch(Committed),
            HolderState::Gone => Settle::Stuck,
        }
    }

    fn guessed(&self) -> Option<Decision> {
        (!self.rules.decides(Rule::CommitSettled)).then_some(Decision::Aborted)
    }
}

/// Writes the record as `finished` after an apply.
///
/// Each participant was applied by an acknowledged write before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Finish;

impl Machine for Finish {
    type Seen = RecordVersion;
    type Proven = ();

    fn next(&self, seen: &RecordVersion) -> Settle<()> {
        match seen.state {
            // Another process finished it; its day may even be dropped since.
            HolderState::Gone | HolderState::Record(State::Finished) => Settle::Known(()),
            HolderState::Record(State::Committed) => seen.replace(()),
            // A plain client removed the record: it is written again.
            HolderState::Missing => Settle::Write(Condition::Absent, ()),
            HolderState::Record(State::Pending | State::Aborted) => Settle::Stuck,
        }
    }
}

/// The owner's record, as far as its own writes tell.
///
/// All writes of the owner pass through the writer, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordWriter {
    /// Nothing was sent.
    #[default]
    Unwritten,
    /// A heartbeat sent the first `pending` and has no answer. The write may land late.
    InDoubt,
    /// A heartbeat wrote `pending`.
    Pending(Version),
    /// The commit was sent, or the attempt is over: no further heartbeat.
    Sealed,
}

/// The next step of a heartbeat after its write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// Send another heartbeat later.
    GoOn,
    /// Another process aborted the attempt.
    Wounded,
    /// End the heartbeat: there is nothing left to keep alive.
    Stop,
}

impl RecordWriter {
    /// Returns the condition of the heartbeat to send now.
    ///
    /// `None` if the writer is sealed.
    pub fn beat(&mut self) -> Option<Condition> {
        match *self {
            Self::Unwritten | Self::InDoubt => {
                *self = Self::InDoubt;
                Some(Condition::Absent)
            }
            Self::Pending(version) => Some(Condition::At(version)),
            Self::Sealed => None,
        }
    }

    /// Notes that the heartbeat was acknowledged.
    pub fn beaten(&mut self, version: Version) {
        *self = Self::Pending(version);
    }

    /// Takes the record that was read after an unacknowledged heartbeat.
    pub fn seen(&mut self, seen: RecordVersion) -> Beat {
        match (seen.state, seen.version) {
            (HolderState::Record(State::Pending), Some(version)) => {
                *self = Self::Pending(version);
                Beat::GoOn
            }
            (HolderState::Record(State::Aborted), _) => Beat::Wounded,
            (HolderState::Missing, _) => Beat::GoOn,
            _ => Beat::Stop,
        }
    }

    /// Seals the writer before the last write of the owner.
    ///
    /// Returns the record as the owner knows it; none if the writer was sealed before.
    pub fn seal(&mut self) -> Option<RecordVersion> {
        match std::mem::replace(self, Self::Sealed) {
            Self::Pending(version) => Some(RecordVersion::at(State::Pending, version)),
            Self::Unwritten | Self::InDoubt => Some(RecordVersion::MISSING),
            Self::Sealed => None,
        }
    }

    /// Whether there may be a record.
    #[must_use]
    pub fn may_have_record(&self) -> bool {
        matches!(self, Self::InDoubt | Self::Pending(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_heartbeat_is_a_sign_of_life() {
        let rules = Rules::default();
        let at = |seq_no| RecordVersion::at(State::Pending, Version::new(1, seq_no));
        let dead_at = |dead_at| Decide { rules: &rules, known_aborted: false, dead_at };
        let swap = |seq_no| {
            let condition = Condition::At(Version::new(1, seq_no));
            Settle::Write(condition, Decision::Aborted)
        };
        assert_eq!(dead_at(Some(at(3))).next(&at(3)), swap(3));
        assert_eq!(dead_at(Some(at(3))).next(&at(4)), Settle::Stuck);
        assert_eq!(dead_at(Some(RecordVersion::MISSING)).next(&at(0)), Settle::Stuck);
        assert_eq!(dead_at(None).next(&at(4)), swap(4), "a wound asks for no sign of life");
        let committed = RecordVersion::at(State::Committed, Version::new(1, 4));
        let touch = Settle::Touch(Version::new(1, 4), Decision::Committed);
        assert_eq!(dead_at(Some(at(3))).next(&committed), touch);
    }
}
