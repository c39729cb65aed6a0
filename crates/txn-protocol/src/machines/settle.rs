//! The settlement of one document: the acknowledgement rule as data.
//!
//! Only an acknowledged conditional write is knowledge. A read only chooses the next write. So a
//! machine returns, for each read, the next write and the fact that its acknowledgement proves. The
//! engine has one loop: read, write, and read again until a write is acknowledged.

use txn_store::{Outcome, Version};

use crate::document::View;
use crate::ids::CommitVersion;
use crate::rule::{Rule, Rules};
use crate::rules::single::{Settling, settling};
use crate::rules::validate::Observed;

/// The next step for one document.
///
/// The step follows from the document as it was read.
///
/// `P` is the fact that the step proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settle<P> {
    /// Nothing: an acknowledged write has proved this already.
    Known(P),
    /// Write new content under this condition. The acknowledgement proves this.
    Write(Condition, P),
    /// Write the same content again, at this version. The acknowledgement proves this.
    Touch(Version, P),
    /// No write settles the document.
    Stuck,
}

/// The condition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// There is no document.
    Absent,
    /// The document has this version.
    At(Version),
}

impl From<Option<Version>> for Condition {
    fn from(version: Option<Version>) -> Self {
        version.map_or(Self::Absent, Self::At)
    }
}

/// Writes one document until an acknowledged write settles the outcome.
pub trait Machine {
    /// The result of a read.
    type Seen;
    /// The fact that an acknowledged write proves.
    type Proven;

    /// The next step for the document as it was read.
    fn next(&self, seen: &Self::Seen) -> Settle<Self::Proven>;

    /// The fact that a write proves without acknowledgement or further read.
    ///
    /// The write met a conflict, or has no answer.
    ///
    /// There is no such fact while the rules are in force.
    fn guessed(&self) -> Option<Self::Proven> {
        None
    }
}

/// The outcome of a write without a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SingleOutcome {
    /// The write is committed.
    Committed,
    /// Another write came first, and this one never happens.
    Overtaken,
}

/// Settles a write of one document by the document itself.
///
/// Such a write has no record.
#[derive(Clone, Copy, Debug)]
pub struct SingleWrite<'a> {
    /// The rules in force.
    pub rules: &'a Rules,
    /// The read that the write is conditioned on.
    pub read: &'a Observed,
    /// The list of commits in the document that was read.
    pub recent: &'a [CommitVersion],
    /// The commit version of the write.
    pub commit: CommitVersion,
}

impl Machine for SingleWrite<'_> {
    type Seen = View;
    type Proven = SingleOutcome;

    fn next(&self, seen: &View) -> Settle<SingleOutcome> {
        use SingleOutcome::{Committed, Overtaken};
        let touch = |version, rule, outcome| match self.rules.decides(rule) {
            true => Settle::Touch(version, outcome),
            false => Settle::Known(outcome),
        };
        match settling(self.read, self.recent, self.commit, seen) {
            Settling::Resend => Settle::Write(self.read.version.into(), Committed),
            Settling::CommittedOnceTouched(version) => {
                touch(version, Rule::TouchOwnCommit, Committed)
            }
            Settling::NotAppliedOnceTouched(version) => {
                touch(version, Rule::TouchLaterCommit, Overtaken)
            }
            Settling::Unknown => Settle::Stuck,
        }
    }

    fn guessed(&self) -> Option<SingleOutcome> {
        (!self.rules.decides(Rule::SettleSingle)).then_some(SingleOutcome::Overtaken)
    }
}

/// The meaning of an answer to a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The answer is knowledge. The write has this version, or a checked condition holds.
    Proof(Option<Version>),
    /// The write did not happen, and may be sent again. The text says why.
    Later(String),
    /// The answer proves nothing, and the document has to be read. The text says why.
    Doubt(String),
    /// The store refused the write, and would refuse the same write again.
    Refused(Outcome),
}

impl From<Outcome> for Answer {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Applied(version) => Self::Proof(Some(version)),
            Outcome::Holds => Self::Proof(None),
            Outcome::Rejected(why) => Self::Later(why),
            Outcome::Conflict => Self::Doubt("the document keeps changing".to_owned()),
            Outcome::RejectedInDoubt(why) | Outcome::Unknown(why) => Self::Doubt(why),
            refused @ (Outcome::MissingCollection | Outcome::Invalid(_)) => Self::Refused(refused),
        }
    }
}
