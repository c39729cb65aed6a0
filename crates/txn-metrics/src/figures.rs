//! The figures: their names, units and labels.

use metrics::Unit;

/// What a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Every value, for quantiles or buckets.
    Histogram,
}

/// A figure. Each has the label `domain`, too.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Figure {
    /// Its name. It does not change within a major version.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// In which unit.
    pub unit: Unit,
    /// A label beside `domain`, with all of its values.
    pub label: Option<(&'static str, &'static [&'static str])>,
    /// What it says, in one sentence.
    pub about: &'static str,
}

const YES_NO: &[&str] = &["true", "false"];

/// What a call may have come to: `committed`, or the kind of its error.
pub(crate) const RESULTS: &[&str] = &[
    "committed",
    "invalid",
    "exists",
    "conflict",
    "unavailable",
    "overloaded",
    "unknown",
    "misconfigured",
    "damaged",
    "other",
];

macro_rules! figures {
    ($($(#[$doc:meta])* $constant:ident = $name:literal, $kind:ident, $unit:ident, $label:expr, $about:literal;)*) => {
        $(#[doc = $about] pub const $constant: &str = $name;)*

        /// All of them.
        pub const FIGURES: &[Figure] = &[$(
            Figure { name: $name, kind: Kind::$kind, unit: Unit::$unit, label: $label, about: $about },
        )*];
    };
}

figures! {
    ATTEMPTS = "txn_attempts_total", Counter, Count, None,
        "Attempts that began: one for each transaction, and one more whenever it starts again.";
    COMMITS = "txn_commits_total", Counter, Count, None,
        "Commits that were acknowledged; a group is one, and what only read is none.";
    COMMIT_SECONDS = "txn_commit_seconds", Histogram, Seconds, None,
        "From the begin of a transaction, with all its attempts, to its acknowledged commit; of a group, from the begin of its oldest.";
    DOCUMENTS_WRITTEN = "txn_documents_written_total", Counter, Count, None,
        "Documents that commits wrote.";
    LAST_COMMIT = "txn_last_commit_timestamp_seconds", Gauge, Seconds, None,
        "When the last commit was acknowledged, in seconds since 1970.";
    FINISHED = "txn_finished_total", Counter, Count, None,
        "Commits that are applied to all of their documents, by the process that committed; those of one document, which leave no record, are not in it.";
    FINISHED_SECONDS = "txn_finished_seconds", Histogram, Seconds, None,
        "From the begin of a transaction until its commit was applied.";
    ABORTS = "txn_aborts_total", Counter, Count, Some(("retried", YES_NO)),
        "Attempts that ended without a commit, if they had locks or the transaction may start again, as the label says.";
    GROUP_TRANSACTIONS = "txn_group_transactions", Histogram, Count, None,
        "How many transactions were composed into one, group by group.";
    LOCKS = "txn_locks_total", Counter, Count, None,
        "Documents that were locked.";
    LOCK_HANDOFFS = "txn_lock_handoffs_total", Counter, Count, None,
        "Those of them that carry the content of a commit which was not applied.";
    WAITS = "txn_waits_total", Counter, Count, None,
        "How often an attempt began to wait for an older one, at one document.";
    WOUNDS = "txn_wounds_total", Counter, Count, None,
        "Younger transactions that an older one of this process aborted to take their lock.";
    REPLAYS = "txn_replays_total", Counter, Count, None,
        "Commits of others that were found unapplied, and applied.";
    RECOVERY_ABORTS = "txn_recovery_aborts_total", Counter, Count, Some(("recorded", YES_NO)),
        "Transactions of others that were taken for dead and aborted.";
    UNLOCKS = "txn_unlocks_total", Counter, Count, None,
        "Void locks that were taken off documents.";
    DAMAGES = "txn_damages_total", Counter, Count, None,
        "How often something was found that a person must look at.";
    PARTITIONS_DROPPED = "txn_partitions_dropped_total", Counter, Count, None,
        "Days of the transaction table that were dropped.";
    RESULTS_TOTAL = "txn_results_total", Counter, Count, Some(("result", RESULTS)),
        "What callers were told, where they tell it to `Metrics::result`.";
}
