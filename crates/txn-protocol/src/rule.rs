//! The rules of the protocol by name, and which of them stand.
//!
//! In the product all of them stand, and to ask costs nothing. With the feature `testing` one can be left out, to see that
//! something notices.

#[cfg(feature = "testing")]
use std::sync::Arc;
#[cfg(feature = "testing")]
use std::sync::atomic::{AtomicU64, Ordering};

/// What notices that a rule is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownBy {
    /// A flaw of a model, and a mutation of the simulation.
    Both,
    /// A flaw of a model only.
    Model {
        /// Why the engine cannot be run without the rule, or nothing would come of it.
        no_mutation: &'static str,
    },
    /// A mutation of the simulation only.
    Mutation {
        /// Why no model can leave the rule out.
        no_model: &'static str,
    },
}

impl ShownBy {
    /// Whether a model has to have a flaw without the rule.
    #[must_use]
    pub const fn has_model(self) -> bool {
        !matches!(self, Self::Mutation { .. })
    }

    /// Whether the simulation has to have a mutation without the rule.
    #[must_use]
    pub const fn has_mutation(self) -> bool {
        !matches!(self, Self::Model { .. })
    }
}

const BOTH: ShownBy = ShownBy::Both;
/// A rule of groups that what a process remembers of its commits makes hard to break.
const REMEMBERED: ShownBy = ShownBy::Model {
    no_mutation: "what is composed was read of the commit, as long as it is remembered",
};
/// Rules of groups.
const GROUPS: ShownBy = ShownBy::Model {
    no_mutation: "the engine leaves to the next group only what it knows to be committed, under locks of its own",
};

macro_rules! rules {
    ($($(#[$doc:meta])+ $name:ident = $id:literal, $shown_by:expr;)+) => {
        /// A rule without which the protocol is broken. The reasons are in `docs/protocol.md`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rule {
            $($(#[$doc])+ $name,)+
        }

        impl Rule {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Its name in documents and reports, which stays.
            #[must_use]
            pub const fn id(self) -> &'static str {
                match self {
                    $(Self::$name => $id,)+
                }
            }

            /// What notices that it is left out.
            #[must_use]
            pub const fn shown_by(self) -> ShownBy {
                match self {
                    $(Self::$name => $shown_by,)+
                }
            }
        }
    };
}

rules! {
    /// A lock is taken only over the content that the closure read.
    LockOverWhatWasRead = "LOCK_OVER_WHAT_WAS_READ", BOTH;
    /// A lock is taken over a commit of one's own process only once that is acknowledged.
    LockOverAcknowledged = "LOCK_OVER_ACKNOWLEDGED", GROUPS;
    /// A lock is taken over a commit of one's own process only over what was read of that commit: a version is none.
    LockOverByCommit = "LOCK_OVER_BY_COMMIT", REMEMBERED;
    /// A lock is taken over a commit of one's own process only where that commit's own lock stands.
    LockOverParticipants = "LOCK_OVER_PARTICIPANTS", GROUPS;
    /// A lock whose write was not acknowledged counts only once an acknowledged touch says so.
    LockAcknowledged = "LOCK_ACKNOWLEDGED", BOTH;
    /// An older transaction does not wait for a younger one.
    WoundYounger = "WOUND_YOUNGER", BOTH;
    /// The lock of somebody else is replaced only once its holder's abort is acknowledged.
    AbortBeforeTakeOver = "ABORT_BEFORE_TAKE_OVER", BOTH;
    /// What was only read is validated.
    ValidateReads = "VALIDATE_READS", BOTH;
    /// What was only read is validated after every lock is acknowledged, not before.
    ValidateAfterLocks = "VALIDATE_AFTER_LOCKS", BOTH;
    /// A read that somebody else holds is not valid, though its version is the same.
    ValidateHolders = "VALIDATE_HOLDERS", BOTH;
    /// A read-only transaction waits for the undecided holders it meets.
    ReadOnlyWaits = "READ_ONLY_WAITS", BOTH;
    /// Of several documents that were absent when they were read each is locked by a placeholder.
    LockAbsentReads = "LOCK_ABSENT_READS", BOTH;
    /// An absence is verified first, alone, and the versions after it.
    AbsenceFirst = "ABSENCE_FIRST", BOTH;
    /// A commit version is not earlier than the server's time, where the store tells one.
    VersionByServer = "VERSION_BY_SERVER", ShownBy::Mutation {
        no_model: "the models have no clocks: versions there are drawn in the order of the commits",
    };
    /// A transaction that only locked reads looks in the end whether all locks still stand.
    VerifyReadLocks = "VERIFY_READ_LOCKS", BOTH;
    /// A commit that finds its record aborted is no commit.
    AbortFlag = "ABORT_FLAG", BOTH;
    /// A commit that was not acknowledged is settled by an acknowledged write before anything else is done.
    CommitSettled = "COMMIT_SETTLED", BOTH;
    /// A write that is refused may have been carried out.
    RefusalInDoubt = "REFUSAL_IN_DOUBT", BOTH;
    /// An `aborted` record of somebody else is touched before its locks are void.
    TouchAborted = "TOUCH_ABORTED", BOTH;
    /// A `committed` record of somebody else is touched before it is applied.
    TouchCommitted = "TOUCH_COMMITTED", BOTH;
    /// Readers answer for a locked document by the record of its holder.
    ReadTheRecord = "READ_THE_RECORD", BOTH;
    /// A lock that the committed record of its holder does not name is void.
    UnnamedLockVoid = "UNNAMED_LOCK_VOID", BOTH;
    /// A placeholder is a lock only at the version that the record names.
    PlaceholderVersion = "PLACEHOLDER_VERSION", BOTH;
    /// A committed insert whose placeholder was moved or removed is not taken for applied before
    /// its record is finished.
    MovedLock = "MOVED_LOCK", BOTH;
    /// An owner takes the place of its moved or missing lock again only once an acknowledged touch
    /// of its record says that nobody else applied it, and no deletion is on record.
    RelockUnapplied = "RELOCK_UNAPPLIED", BOTH;
    /// A collection that was made again proves nothing about a commit, and no apply writes it: the
    /// commit is reported as lost.
    SameCollection = "SAME_COLLECTION", BOTH;
    /// Content of another commit than the one under the lock was written since, whichever commit tid is larger.
    WrittenSince = "WRITTEN_SINCE", BOTH;
    /// What seems applied counts only once it is touched.
    TouchApplied = "TOUCH_APPLIED", BOTH;
    /// Whoever applies touches what others have locked since, and waits for none of them.
    TouchKeepsLock = "TOUCH_KEEPS_LOCK", ShownBy::Model {
        no_mutation: "whoever waits in a ring gives up by its deadline or is taken for dead: no world of thousands noticed",
    };
    /// A participant that is gone counts as deleted only once an acknowledged write proves it.
    ProveAbsence = "PROVE_ABSENCE", BOTH;
    /// An apply that was not acknowledged is settled before the record is finished.
    ApplyAcknowledged = "APPLY_ACKNOWLEDGED", BOTH;
    /// A one-document write is sent only where no lock stood.
    SingleSeesLocks = "SINGLE_SEES_LOCKS", BOTH;
    /// A one-document write that was not acknowledged is settled by the document's list of commits.
    SettleSingle = "SETTLE_SINGLE", BOTH;
    /// The own commit that is found in a document's list counts only once it is touched.
    TouchOwnCommit = "TOUCH_OWN_COMMIT", BOTH;
    /// A later commit that is found in a document's list proves a failure only once it is touched.
    TouchLaterCommit = "TOUCH_LATER_COMMIT", BOTH;
    /// A commit stays in a document's list until its process knows what became of it.
    KeepInDoubt = "KEEP_IN_DOUBT", BOTH;
    /// A partition is named as the official one before it gets the alias.
    OfficialBeforeAlias = "OFFICIAL_BEFORE_ALIAS", ShownBy::Model {
        no_mutation: "an order of steps of the machine that makes a partition: there is no decision that could be left out",
    };
    /// Writes of records require that the alias exists.
    RequireAlias = "REQUIRE_ALIAS", ShownBy::Model {
        no_mutation: "a flag of the write: the simulated server makes no index by itself that could be written instead",
    };
    /// The partition of a day that is gone is not made again.
    DroppedThrough = "DROPPED_THROUGH", BOTH;
    /// A missing partition says nothing of a transaction as long as its day is not gone.
    MissingIsNotGone = "MISSING_IS_NOT_GONE", BOTH;
    /// That a day is gone is said by an acknowledged touch of the domain document.
    TouchGone = "TOUCH_GONE", BOTH;
    /// A partition is dropped only when nothing in it is open.
    DropOnlyResolved = "DROP_ONLY_RESOLVED", BOTH;
    /// Nobody writes to a partition any more while it is searched for the last time.
    BlockBeforeDrop = "BLOCK_BEFORE_DROP", BOTH;
    /// The watermark is moved on the version of the domain document that was read before the block.
    WatermarkBeforeBlock = "WATERMARK_BEFORE_BLOCK", BOTH;
    /// A day is not dropped while somebody may be lifting its block.
    LiftSettles = "LIFT_SETTLES", BOTH;
}

impl Rule {
    /// The rule of this id.
    #[must_use]
    pub fn of_id(id: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|rule| rule.id() == id)
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.id())
    }
}

/// Which rules stand: all of them, unless a test leaves one out. Decisions are given it and ask it.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    #[cfg(feature = "testing")]
    off: Option<Arc<Off>>,
}

/// The rule that is left out.
#[cfg(feature = "testing")]
#[derive(Debug)]
struct Off {
    rule: Rule,
    asked: AtomicU64,
}

impl Rules {
    /// All of them stand.
    #[must_use]
    pub const fn all() -> Self {
        Self {
            #[cfg(feature = "testing")]
            off: None,
        }
    }

    /// Whether the rule stands.
    #[cfg(not(feature = "testing"))]
    #[inline]
    #[must_use]
    pub const fn decides(&self, _rule: Rule) -> bool {
        true
    }
}

#[cfg(feature = "testing")]
impl Rules {
    /// All but one.
    #[must_use]
    pub fn without(rule: Rule) -> Self {
        Self { off: Some(Arc::new(Off { rule, asked: AtomicU64::new(0) })) }
    }

    /// Whether the rule stands. That one was asked for that does not is counted.
    #[must_use]
    pub fn decides(&self, rule: Rule) -> bool {
        match &self.off {
            Some(off) if off.rule == rule => {
                off.asked.fetch_add(1, Ordering::Relaxed);
                false
            }
            _ => true,
        }
    }

    /// The rule that is left out.
    #[must_use]
    pub fn left_out(&self) -> Option<Rule> {
        self.off.as_ref().map(|off| off.rule)
    }

    /// How often this value and its clones were asked for the rule that is left out. What was noticed without it proves
    /// nothing if it was never asked for.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.off.as_ref().map_or(0, |off| off.asked.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_the_names_in_capitals() {
        for rule in Rule::ALL {
            let mut id = String::new();
            for letter in format!("{rule:?}").chars() {
                if letter.is_uppercase() && !id.is_empty() {
                    id.push('_');
                }
                id.push(letter.to_ascii_uppercase());
            }
            assert_eq!(rule.id(), id);
            assert_eq!(Rule::of_id(&id), Some(*rule));
        }
        let ids: BTreeSet<&str> = Rule::ALL.iter().map(|rule| rule.id()).collect();
        assert_eq!(ids.len(), Rule::ALL.len());
        assert_eq!(Rule::of_id("TOUCH_NOTHING"), None);
        assert_eq!(format!("{:>14}", Rule::TouchAborted), " TOUCH_ABORTED");
    }

    #[test]
    fn all_stand() {
        let rules = Rules::all();
        assert!(Rule::ALL.iter().all(|rule| rules.decides(*rule)));
    }

    #[cfg(feature = "testing")]
    #[test]
    fn one_is_left_out_and_counted() {
        let rules = Rules::without(Rule::TouchAborted);
        let clone = rules.clone();
        let off: Vec<Rule> =
            Rule::ALL.iter().copied().filter(|rule| !clone.decides(*rule)).collect();
        assert_eq!(off, [Rule::TouchAborted]);
        assert!(!rules.decides(Rule::TouchAborted));
        assert_eq!((rules.asked(), clone.asked()), (2, 2));
        assert_eq!(rules.left_out(), Some(Rule::TouchAborted));
        assert_eq!((Rules::all().left_out(), Rules::all().asked()), (None, 0));
    }

    #[cfg(not(feature = "testing"))]
    #[test]
    fn they_cost_nothing() {
        const STANDS: bool = Rules::all().decides(Rule::TouchAborted);
        assert!(STANDS);
        assert_eq!(size_of::<Rules>(), 0);
    }
}
