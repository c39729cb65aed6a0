//! The law as data: only an acknowledged conditional write is knowledge.
//!
//! Whatever was read only chooses the next write. So a machine that is to settle something about one document says for what it
//! sees what is to be written, and what that proves once it is acknowledged. The driver is one loop: look, write, and look
//! again as long as nothing was acknowledged.

use txn_store::{Outcome, Version};

use crate::document::View;
use crate::ids::CommitVersion;
use crate::rule::{Rule, Rules};
use crate::rules::single::{Settling, settling};
use crate::rules::validate::Observed;

/// What is to be done about one document, by what stands there. `P` is what is proven by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settle<P> {
    /// Nothing: this is known already, by an acknowledged write.
    Known(P),
    /// Write new content under this condition; acknowledged, it proves this.
    Write(Condition, P),
    /// Write again what stands there, at this version; acknowledged, it proves this.
    Touch(Version, P),
    /// No write settles it.
    Stuck,
}

/// What a write is conditioned on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// There is nothing.
    Absent,
    /// It stands at this version.
    At(Version),
}

impl From<Option<Version>> for Condition {
    fn from(version: Option<Version>) -> Self {
        version.map_or(Self::Absent, Self::At)
    }
}

/// One document that is written until an acknowledged write has settled what became of it.
pub trait Machine {
    /// What a look shows.
    type Seen;
    /// What an acknowledged write proves.
    type Proven;

    /// What is to be done about what stands there.
    fn next(&self, seen: &Self::Seen) -> Settle<Self::Proven>;

    /// What a conflict or a missing answer is taken for, without a further look: nothing, as long as the rules stand.
    fn guessed(&self) -> Option<Self::Proven> {
        None
    }
}

/// What became of a write without a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SingleOutcome {
    /// It is committed.
    Committed,
    /// Another write came first, and this one never happens.
    Overtaken,
}

/// A write of one document without a record: the document itself tells what became of it.
#[derive(Clone, Copy, Debug)]
pub struct SingleWrite<'a> {
    /// The rules that stand.
    pub rules: &'a Rules,
    /// What it is conditioned on.
    pub read: &'a Observed,
    /// The list of commits that stood there.
    pub recent: &'a [CommitVersion],
    /// The tid that it carries.
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

/// What the answer to a write is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is knowledge: written, at this version, or a condition that holds.
    Proof(Option<Version>),
    /// It did not happen, and may be sent again; the text says why.
    Later(String),
    /// It proves nothing, and what stands there has to be looked at; the text says why.
    Doubt(String),
    /// Refused: the same will not succeed.
    Refused(Outcome),
}

impl From<Outcome> for Answer {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Applied(version) => Self::Proof(Some(version)),
            Outcome::Holds => Self::Proof(None),
            Outcome::Rejected(why) => Self::Later(why),
            Outcome::Conflict => Self::Doubt("it is being changed by others".to_owned()),
            Outcome::RejectedInDoubt(why) | Outcome::Unknown(why) => Self::Doubt(why),
            refused @ (Outcome::MissingCollection | Outcome::Invalid(_)) => Self::Refused(refused),
        }
    }
}
