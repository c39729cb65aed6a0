//! The rules of the protocol by name, and the rules in force.
//!
//! In production all rules are in force, and the question costs nothing. With the feature `testing`
//! a test leaves one rule out, and something has to notice.

#[cfg(feature = "testing")]
use std::sync::Arc;
#[cfg(feature = "testing")]
use std::sync::atomic::{AtomicU64, Ordering};

/// The checks that detect the omission of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownBy {
    /// A model and a mutation of the simulation.
    Both,
    /// A model only.
    Model {
        /// The reason for the missing mutation.
        ///
        /// Either the engine cannot run without the rule, or the omission changes nothing.
        no_mutation: &'static str,
    },
    /// A mutation of the simulation only.
    Mutation {
        /// The reason for the missing model.
        no_model: &'static str,
    },
}

impl ShownBy {
    /// Whether a model must fail without the rule.
    #[must_use]
    pub const fn has_model(self) -> bool {
        !matches!(self, Self::Mutation { .. })
    }

    /// Whether the simulation must fail without the rule.
    #[must_use]
    pub const fn has_mutation(self) -> bool {
        !matches!(self, Self::Model { .. })
    }
}

const BOTH: ShownBy = ShownBy::Both;
/// A rule of groups that the document cache makes hard to break.
const CACHED: ShownBy = ShownBy::Model {
    no_mutation: "a group reads the commit itself, while the document cache has it",
};
/// Rules of groups.
const GROUPS: ShownBy = ShownBy::Model {
    no_mutation: "the engine hands off only acknowledged commits, under locks of its own",
};

macro_rules! rules {
    ($($(#[$doc:meta])+ $name:ident = $id:literal, $shown_by:expr;)+) => {
        /// A rule without which the protocol is broken. `docs/protocol.md` has the reasons.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rule {
            $($(#[$doc])+ $name,)+
        }

        impl Rule {
            /// All rules.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The stable name of the rule in documents and reports.
            #[must_use]
            pub const fn id(self) -> &'static str {
                match self {
                    $(Self::$name => $id,)+
                }
            }

            /// The checks that detect the omission.
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
    LockWhatWasRead = "LOCK_WHAT_WAS_READ", BOTH;
    /// A hand-off requires the acknowledgement of the commit that it overwrites.
    HandoffAcknowledged = "HANDOFF_ACKNOWLEDGED", GROUPS;
    /// A hand-off requires a read of the commit that it overwrites. The version of the document
    /// identifies no content.
    HandoffByCommit = "HANDOFF_BY_COMMIT", CACHED;
    /// A hand-off replaces only the lock that the record of its commit names.
    HandoffOwnLock = "HANDOFF_OWN_LOCK", GROUPS;
    /// A lock without an acknowledgement counts only after an acknowledged touch.
    LockAcknowledged = "LOCK_ACKNOWLEDGED", BOTH;
    /// An older transaction does not wait for a younger one.
    WoundYounger = "WOUND_YOUNGER", BOTH;
    /// A foreign lock is replaced only after its holder's acknowledged abort.
    AbortBeforeTakeOver = "ABORT_BEFORE_TAKE_OVER", BOTH;
    /// A document that was only read is validated.
    ValidateReads = "VALIDATE_READS", BOTH;
    /// Validation begins after every lock is acknowledged, not before.
    ValidateAfterLocks = "VALIDATE_AFTER_LOCKS", BOTH;
    /// A read of a document that another attempt holds is invalid. An equal version changes
    /// nothing.
    ValidateHolders = "VALIDATE_HOLDERS", BOTH;
    /// A read-only transaction waits for the undecided holders that it finds.
    ReadOnlyWaits = "READ_ONLY_WAITS", BOTH;
    /// Several absent reads of a transaction are each locked by a placeholder.
    LockAbsentReads = "LOCK_ABSENT_READS", BOTH;
    /// An absence is verified first, alone, and then the versions.
    AbsenceFirst = "ABSENCE_FIRST", BOTH;
    /// A commit version is not earlier than the server's time. The rule applies if the store tells
    /// its time.
    VersionByServer = "VERSION_BY_SERVER", ShownBy::Mutation {
        no_model: "the models have no clocks: versions there are drawn in the order of the commits",
    };
    /// A transaction that only locked reads verifies its locks at the end.
    VerifyReadLocks = "VERIFY_READ_LOCKS", BOTH;
    /// A commit that finds its record aborted is no commit.
    AbortFlag = "ABORT_FLAG", BOTH;
    /// An unacknowledged commit is settled before anything else. An acknowledged write settles the
    /// commit.
    CommitSettled = "COMMIT_SETTLED", BOTH;
    /// A refused write may have been carried out.
    RefusalInDoubt = "REFUSAL_IN_DOUBT", BOTH;
    /// A foreign `aborted` record is touched before its locks are void.
    TouchAborted = "TOUCH_ABORTED", BOTH;
    /// A foreign `committed` record is touched before it is applied.
    TouchCommitted = "TOUCH_COMMITTED", BOTH;
    /// A reader follows the holder's record for a locked document.
    ReadTheRecord = "READ_THE_RECORD", BOTH;
    /// A lock is void if its holder's committed record omits it.
    UnnamedLockVoid = "UNNAMED_LOCK_VOID", BOTH;
    /// A placeholder is a lock only at its version in the record.
    PlaceholderVersion = "PLACEHOLDER_VERSION", BOTH;
    /// A committed insert without its placeholder does not count as applied. The placeholder was
    /// moved or removed, and the record is not finished.
    MovedLock = "MOVED_LOCK", BOTH;
    /// An owner replaces a moved or missing lock only under two conditions. An acknowledged touch
    /// of the owner's record says that no other process applied the commit. No deletion is on
    /// record.
    RelockUnapplied = "RELOCK_UNAPPLIED", BOTH;
    /// A collection that was made again proves nothing about a commit. No apply writes such a
    /// collection. The apply reports the commit as lost.
    SameCollection = "SAME_COLLECTION", BOTH;
    /// Content counts as written since if its commit is another one. The compared commit is that of
    /// the content under the lock. The larger commit version decides nothing.
    WrittenSince = "WRITTEN_SINCE", BOTH;
    /// A participant that seems applied counts only once it is touched.
    TouchApplied = "TOUCH_APPLIED", BOTH;
    /// An apply touches documents that were locked since. The apply waits for no later holder.
    TouchKeepsLock = "TOUCH_KEEPS_LOCK", ShownBy::Model {
        no_mutation: "a process that waits in a ring times out or is taken for dead: no run of thousands failed",
    };
    /// A missing participant counts as deleted only after an acknowledged write. The write proves
    /// the absence.
    ProveAbsence = "PROVE_ABSENCE", BOTH;
    /// An unacknowledged apply is settled before the record is finished.
    ApplyAcknowledged = "APPLY_ACKNOWLEDGED", BOTH;
    /// A write of one document requires a document without a lock.
    SingleSeesLocks = "SINGLE_SEES_LOCKS", BOTH;
    /// A document's list of commits settles its unacknowledged one-document write.
    SettleSingle = "SETTLE_SINGLE", BOTH;
    /// The own commit in a document's list counts only after a touch.
    TouchOwnCommit = "TOUCH_OWN_COMMIT", BOTH;
    /// A later commit in the list proves failure only after a touch. The list is that of the
    /// document.
    TouchLaterCommit = "TOUCH_LATER_COMMIT", BOTH;
    /// A document's list keeps a commit until its process knows the outcome.
    KeepInDoubt = "KEEP_IN_DOUBT", BOTH;
    /// A partition gets the alias only after the domain document names it.
    OfficialBeforeAlias = "OFFICIAL_BEFORE_ALIAS", ShownBy::Model {
        no_mutation: "an order of steps of the machine that makes a partition: no decision could be left out",
    };
    /// A write of a record requires that the alias exists.
    RequireAlias = "REQUIRE_ALIAS", ShownBy::Model {
        no_mutation: "a flag of the write: the simulated server makes no index by itself",
    };
    /// The partition of a day that is gone is not made again.
    DroppedThrough = "DROPPED_THROUGH", BOTH;
    /// A missing partition says nothing while its day is not gone. Nothing follows for the
    /// transactions of the day.
    MissingIsNotGone = "MISSING_IS_NOT_GONE", BOTH;
    /// Only an acknowledged touch of the domain document proves a day gone.
    TouchGone = "TOUCH_GONE", BOTH;
    /// A partition is dropped only when nothing in it is open.
    DropOnlyResolved = "DROP_ONLY_RESOLVED", BOTH;
    /// No process writes to a partition during the last scan.
    BlockBeforeDrop = "BLOCK_BEFORE_DROP", BOTH;
    /// The watermark moves on the domain document read before the block. The condition of the write
    /// is the version of that read.
    WatermarkBeforeBlock = "WATERMARK_BEFORE_BLOCK", BOTH;
    /// A day is not dropped while its block may be lifted. A process may be lifting the block.
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

/// The rules in force: all rules, unless a test leaves one out. Decisions take this value as an
/// argument.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    #[cfg(feature = "testing")]
    asked: Option<Arc<Asked>>,
}

/// The omitted rule, if any, and the questions for each rule. The engine asks the questions.
#[cfg(feature = "testing")]
#[derive(Debug)]
struct Asked {
    off: Option<Rule>,
    times: [AtomicU64; Rule::ALL.len()],
}

impl Rules {
    /// All rules are in force.
    #[must_use]
    pub const fn all() -> Self {
        Self {
            #[cfg(feature = "testing")]
            asked: None,
        }
    }

    /// Whether the rule is in force.
    #[cfg(not(feature = "testing"))]
    #[inline]
    #[must_use]
    pub const fn decides(&self, _rule: Rule) -> bool {
        true
    }
}

/// Without the feature `testing`, rules take no space. Each question is a constant.
#[cfg(not(feature = "testing"))]
const _: () = assert!(Rules::all().decides(Rule::TouchAborted) && size_of::<Rules>() == 0);

#[cfg(feature = "testing")]
impl Rules {
    /// All rules but one.
    #[must_use]
    pub fn without(rule: Rule) -> Self {
        Self::counted(Some(rule))
    }

    /// All rules are in force, and questions are counted.
    #[must_use]
    pub fn all_counted() -> Self {
        Self::counted(None)
    }

    fn counted(off: Option<Rule>) -> Self {
        let times = std::array::from_fn(|_| AtomicU64::new(0));
        Self { asked: Some(Arc::new(Asked { off, times })) }
    }

    /// Whether the rule is in force. Counts the calls, except for [`Rules::all`].
    #[must_use]
    pub fn decides(&self, rule: Rule) -> bool {
        let Some(asked) = &self.asked else { return true };
        asked.times[rule as usize].fetch_add(1, Ordering::Relaxed);
        asked.off != Some(rule)
    }

    /// The rule that is left out.
    #[must_use]
    pub fn left_out(&self) -> Option<Rule> {
        self.asked.as_ref().and_then(|asked| asked.off)
    }

    /// How often this value was asked for the omitted rule.
    ///
    /// The questions for clones count, too.
    ///
    /// A failure proves nothing about a rule that was never asked for.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.left_out().map_or(0, |rule| self.asked_for(rule))
    }

    /// How often this value and its clones were asked for a rule. Always 0 for [`Rules::all`].
    #[must_use]
    pub fn asked_for(&self, rule: Rule) -> u64 {
        let times = self.asked.as_ref().map(|asked| &asked.times[rule as usize]);
        times.map_or(0, |times| times.load(Ordering::Relaxed))
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
    fn all_rules_are_in_force() {
        let rules = Rules::all();
        assert!(Rule::ALL.iter().all(|rule| rules.decides(*rule)));
    }

    #[cfg(feature = "testing")]
    #[test]
    fn omitted_rule_is_counted() {
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

    #[cfg(feature = "testing")]
    #[test]
    fn questions_are_counted_by_rule() {
        let rules = Rules::all_counted();
        assert!(rules.decides(Rule::AbortFlag) && rules.clone().decides(Rule::AbortFlag));
        let asked = [Rule::AbortFlag, Rule::TouchGone].map(|rule| rules.asked_for(rule));
        assert_eq!((asked, rules.asked(), rules.left_out()), ([2, 0], 0, None));
    }
}
