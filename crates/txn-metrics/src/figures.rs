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
    /// Whether the metric is a counter, a gauge or a histogram.
    pub kind: Kind,
    /// The unit of the values.
    pub unit: Unit,
    /// The labels in addition to `domain`, each with its values.
    ///
    /// The label `label` has further values: those of [`Metrics::with_labels`].
    ///
    /// [`Metrics::with_labels`]: crate::Metrics::with_labels
    pub labels: &'static [(&'static str, &'static [&'static str])],
    /// The meaning, in one sentence.
    pub about: &'static str,
}

const YES_NO: &[&str] = &["true", "false"];

/// The possible results of a call: `committed`, `refused` by the closure, or an error kind.
pub(crate) const RESULTS: &[&str] = &[
    "committed",
    "refused",
    "invalid",
    "exists",
    "conflict",
    "unavailable",
    "overloaded",
    "unknown",
    "key_reused",
    "misconfigured",
    "damaged",
    "other",
];

/// The values of `label` that are no label themselves. The values stand for a transaction without a
/// label, for a group of several labels, and for a label outside of the list.
pub(crate) const LABELS: &[&str] = &[NONE, SEVERAL, OTHER];

/// A transaction without a label.
pub(crate) const NONE: &str = "none";

/// A group whose members have several labels.
pub(crate) const SEVERAL: &str = "several";

/// A label outside of the list.
pub(crate) const OTHER: &str = "other";

/// The reasons of aborts.
pub(crate) const REASONS: &[&str] = &[
    "wounded",
    "changed",
    "blocked",
    "overtaken",
    "timed_out",
    "left_group",
    "rolled_back",
    "abandoned",
    "failed",
    "nothing_to_write",
    "other",
];

/// The ends of waits.
pub(crate) const ENDS: &[&str] = &["released", "wounded", "timed_out", "gave_up", "other"];

/// The causes of damage.
pub(crate) const CAUSES: &[&str] =
    &["lock_bypassed", "record_removed", "collection_lost", "not_applicable", "other"];

/// The final outcomes of transactions.
pub(crate) const OUTCOMES: &[&str] = &["committed", "aborted", "forgotten", "other"];

/// The states of requests.
pub(crate) const STATES: &[&str] = &[
    "created",
    "pending",
    "committed",
    "finished",
    "terminating",
    "rolled-back",
    "quarantined",
    "other",
];

macro_rules! figures {
    ($($(#[$doc:meta])* $constant:ident = $name:literal, $kind:ident, $unit:ident, $labels:expr, $about:literal;)*) => {
        $(#[doc = $about] pub const $constant: &str = $name;)*

        /// All metrics.
        pub const FIGURES: &[Figure] = &[$(
            Figure { name: $name, kind: Kind::$kind, unit: Unit::$unit, labels: $labels, about: $about },
        )*];
    };
}

figures! {
    ATTEMPTS = "txn_attempts_total", Counter, Count, &[],
        "Attempts that began: one for each transaction, one more for each retry, and one for each commit of a group.";
    COMMITS = "txn_commits_total", Counter, Count, &[("label", LABELS)],
        "Acknowledged commits. A group counts once, and a transaction that only read does not count.";
    COMMIT_SECONDS = "txn_commit_seconds", Histogram, Seconds, &[],
        "Time from the begin of a transaction, with all of its attempts, to its acknowledged commit; for a group, from the begin of its oldest member.";
    DOCUMENTS_WRITTEN = "txn_documents_written_total", Counter, Count, &[],
        "Documents that commits wrote.";
    LAST_COMMIT = "txn_last_commit_timestamp_seconds", Gauge, Seconds, &[],
        "Time of the last acknowledged commit, in seconds since 1970.";
    FINISHED = "txn_finished_total", Counter, Count, &[],
        "Commits that the committing process applied to all of their documents; a commit of one document, which has no record, does not count.";
    FINISHED_SECONDS = "txn_finished_seconds", Histogram, Seconds, &[],
        "Time from the begin of a transaction until its commit was applied.";
    ABORTS = "txn_aborts_total", Counter, Count, &[("reason", REASONS), ("retried", YES_NO)],
        "Attempts that ended without a commit, if they held locks or another attempt may follow; `retried` says whether it may.";
    GROUP_TRANSACTIONS = "txn_group_transactions", Histogram, Count, &[],
        "Transactions that were merged into each group.";
    LOCKS = "txn_locks_total", Counter, Count, &[],
        "Documents that were locked.";
    LOCK_HANDOFFS = "txn_lock_handoffs_total", Counter, Count, &[],
        "Locked documents that carry the content of an unapplied commit of this process; a part of the locks.";
    WAITS = "txn_waits_total", Counter, Count, &[("label", LABELS)],
        "Waits of an attempt for the holder of a lock, counted once for each document.";
    LOCK_WAIT_SECONDS = "txn_lock_wait_seconds", Histogram, Seconds, &[("end", ENDS)],
        "Time of each wait for one holder of one document, by its end.";
    WOUNDS = "txn_wounds_total", Counter, Count, &[("label", LABELS)],
        "Younger transactions that an older transaction of this process aborted to take their locks; the label is that of the older one.";
    ROLL_FORWARDS = "txn_roll_forwards_total", Counter, Count, &[],
        "Unapplied commits of other transactions that this process rolled forward.";
    RECOVERY_ABORTS = "txn_recovery_aborts_total", Counter, Count, &[("recorded", YES_NO)],
        "Transactions that this process considered dead and aborted.";
    OPERATOR_ABORTS = "txn_operator_aborts_total", Counter, Count, &[],
        "Transactions that an operator aborted by this process.";
    UNLOCKS = "txn_unlocks_total", Counter, Count, &[],
        "Void locks that were removed from documents.";
    DAMAGES = "txn_damages_total", Counter, Count, &[("cause", CAUSES)],
        "Findings of damage that need an operator.";
    UNKNOWNS = "txn_unknowns_total", Counter, Count, &[],
        "Commits that were sent, and whose callers could not learn the outcome at once.";
    OUTCOMES_TOTAL = "txn_outcomes_total", Counter, Count, &[("outcome", OUTCOMES)],
        "Answers of `Domain::outcome`, which settle unknown outcomes.";
    PARTITIONS_DROPPED = "txn_partitions_dropped_total", Counter, Count, &[],
        "Day partitions of the transaction table that were dropped.";
    RESULTS_TOTAL = "txn_results_total", Counter, Count, &[("result", RESULTS)],
        "Results of calls, as passed to `Metrics::result`; those of a gateway are its transactions.";
    RUNNING = "txn_running_transactions", Gauge, Count, &[],
        "Transactions that run in this process, at the last `Metrics::sample`.";
    WAITING = "txn_waiting_transactions", Gauge, Count, &[],
        "Transactions that wait for a permit of `max_concurrent_transactions`, at the last `Metrics::sample`.";
    QUEUED = "txn_queued_transactions", Gauge, Count, &[],
        "Running transactions that wait for a group, at the last `Metrics::sample`.";
    REQUESTS = "txn_shared_requests_total", Counter, Count, &[],
        "Requests that running transactions share.";
    REQUEST_OPERATIONS = "txn_shared_request_operations_total", Counter, Count, &[],
        "Operations in shared requests; divided by the requests, the mean batch size.";
    NODES_LEFT_OUT = "txn_nodes_left_out", Gauge, Count, &[],
        "Nodes of the cluster that requests avoid, as passed to `Metrics::nodes`.";
    NODES = "txn_nodes", Gauge, Count, &[],
        "Configured nodes of the cluster, as passed to `Metrics::nodes`.";
    OUTBOX_EVENTS = "txn_outbox_events", Gauge, Count, &[],
        "Events that wait in the outbox, as passed to `Metrics::outbox`.";
    OUTBOX_LAG_SECONDS = "txn_outbox_lag_seconds", Gauge, Seconds, &[],
        "Age of the oldest waiting event of the outbox.";
    OUTBOX_BLOCKED = "txn_outbox_blocked_queues", Gauge, Count, &[],
        "Queues of the outbox that wait for a dead letter.";
    DEAD_LETTERS = "txn_outbox_dead_letters", Gauge, Count, &[],
        "Dead letters of the outbox.";
    REQUEST_STATES = "txn_requests", Gauge, Count, &[("state", STATES)],
        "Submitted requests by state, as passed to `Metrics::requests`.";
    REQUESTS_LAG_SECONDS = "txn_requests_lag_seconds", Gauge, Seconds, &[],
        "Time for which the oldest undecided request waits, as passed to `Metrics::requests_lag`.";
}
