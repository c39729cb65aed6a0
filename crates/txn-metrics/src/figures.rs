//! The metrics: names, units and labels.

use metrics::Unit;

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A counter, which only grows.
    Counter,
    /// A gauge, which grows and shrinks.
    Gauge,
    /// A histogram: all values, for quantiles or buckets.
    Histogram,
}

/// A metric. Each metric also has the label `domain`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Figure {
    /// The name. Stable within a major version.
    pub name: &'static str,
    /// The kind.
    pub kind: Kind,
    /// The unit.
    pub unit: Unit,
    /// A label in addition to `domain`, with all its values.
    pub label: Option<(&'static str, &'static [&'static str])>,
    /// The meaning, in one sentence.
    pub about: &'static str,
}

const YES_NO: &[&str] = &["true", "false"];

/// The possible results of a call: `committed`, or an error kind.
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

        /// All metrics.
        pub const FIGURES: &[Figure] = &[$(
            Figure { name: $name, kind: Kind::$kind, unit: Unit::$unit, label: $label, about: $about },
        )*];
    };
}

figures! {
    ATTEMPTS = "txn_attempts_total", Counter, Count, None,
        "Attempts that began: one for each transaction, and one more for each retry.";
    COMMITS = "txn_commits_total", Counter, Count, None,
        "Acknowledged commits. A group counts once, and a transaction that only read does not count.";
    COMMIT_SECONDS = "txn_commit_seconds", Histogram, Seconds, None,
        "Time from the begin of a transaction, with all of its attempts, to its acknowledged commit; for a group, from the begin of its oldest member.";
    DOCUMENTS_WRITTEN = "txn_documents_written_total", Counter, Count, None,
        "Documents that commits wrote.";
    LAST_COMMIT = "txn_last_commit_timestamp_seconds", Gauge, Seconds, None,
        "Time of the last acknowledged commit, in seconds since 1970.";
    FINISHED = "txn_finished_total", Counter, Count, None,
        "Commits that the committing process applied to all of their documents; a commit of one document, which has no record, does not count.";
    FINISHED_SECONDS = "txn_finished_seconds", Histogram, Seconds, None,
        "Time from the begin of a transaction until its commit was applied.";
    ABORTS = "txn_aborts_total", Counter, Count, Some(("retried", YES_NO)),
        "Attempts that ended without a commit, if they held locks or another attempt may follow; the label says whether it may.";
    GROUP_TRANSACTIONS = "txn_group_transactions", Histogram, Count, None,
        "Transactions that were merged into each group.";
    LOCKS = "txn_locks_total", Counter, Count, None,
        "Documents that were locked.";
    LOCK_HANDOFFS = "txn_lock_handoffs_total", Counter, Count, None,
        "Locked documents that carry the content of an unapplied commit of this process; a part of the locks.";
    WAITS = "txn_waits_total", Counter, Count, None,
        "Waits of an attempt for an older one, counted once for each document.";
    WOUNDS = "txn_wounds_total", Counter, Count, None,
        "Younger transactions that an older transaction of this process aborted to take their locks.";
    REPLAYS = "txn_replays_total", Counter, Count, None,
        "Unapplied commits of other transactions that this process rolled forward.";
    RECOVERY_ABORTS = "txn_recovery_aborts_total", Counter, Count, Some(("recorded", YES_NO)),
        "Transactions that this process considered dead and aborted.";
    UNLOCKS = "txn_unlocks_total", Counter, Count, None,
        "Void locks that were removed from documents.";
    DAMAGES = "txn_damages_total", Counter, Count, None,
        "Findings of damage that need an operator.";
    PARTITIONS_DROPPED = "txn_partitions_dropped_total", Counter, Count, None,
        "Day partitions of the transaction table that were dropped.";
    RESULTS_TOTAL = "txn_results_total", Counter, Count, Some(("result", RESULTS)),
        "Results of calls that the application passed to `Metrics::result`.";
}
